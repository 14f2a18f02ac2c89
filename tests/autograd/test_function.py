"""Custom functions: the contract of Function and its ctx."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function, FunctionCtx, gradcheck, gradgradcheck
from lucid_gpu.autograd.function import once_differentiable
from tests.autograd.functions import exponential
from tests.oracle import agree, gives, same_error, torch_module

X = np.random.default_rng(11).uniform(0.3, 1.5, (3, 4))
W = np.random.default_rng(12).uniform(0.3, 1.5, (5, 4))


def power(m: Any) -> Any:
    class Power(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, n: float) -> Any:
            ctx.save_for_backward(x)
            ctx.n = n
            return x**n

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * ctx.n * x ** (ctx.n - 1), None

    return Power


def multiply_add(m: Any) -> Any:
    class MultiplyAdd(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, z: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y + z

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y, g * x, g

    return MultiplyAdd


def linear(m: Any) -> Any:
    class Linear(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.save_for_backward(x, weight)
            return x @ weight.T

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, weight = ctx.saved_tensors
            a = g @ weight if ctx.needs_input_grad[0] else None
            b = g.T @ x if ctx.needs_input_grad[1] else None
            return a, b

    return Linear


def constant_factor(m: Any) -> Any:
    class ConstantFactor(m.autograd.Function):
        @staticmethod
        def forward(x: Any, factor: float) -> Any:
            return x * factor

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, ctx.factor = inputs

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.factor, None

    return ConstantFactor


def square(m: Any) -> Any:
    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.shape = x.shape
            return (x * x).reshape(-1)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g.reshape(ctx.shape)

    return Square


def sine_and_cosine(m: Any) -> Any:
    class SineAndCosine(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            (x,) = ctx.saved_tensors
            return a * x.cos() - b * x.sin()

    return SineAndCosine


USES: dict[str, Any] = {
    "power": lambda m, x: power(m).apply(x, 3) * 2,
    "product and sum": lambda m, x: multiply_add(m).apply(x, x * 2, x[0]),
    "setup_context": lambda m, x: constant_factor(m).apply(x * 2, 2.5),
    "saved output": lambda m, x: exponential(m).apply(x * 0.5) * x,
    "reshaping": lambda m, x: square(m).apply(x.t()),
    "two outputs": lambda m, x: [a * b for a, b in [sine_and_cosine(m).apply(x * x)]],
    "one of two outputs": lambda m, x: sine_and_cosine(m).apply(x)[1],
    "nested": lambda m, x: exponential(m).apply(power(m).apply(exponential(m).apply(x * 0.1), 2)),
}


@pytest.mark.parametrize("name", USES)
def test_functions_agree_with_torch(name: str, device: str) -> None:
    agree(USES[name], X, device=device)


def test_a_linear_layer_agrees_with_torch(device: str) -> None:
    agree(lambda m, x, w: linear(m).apply(x, w), X, W, device=device)


@pytest.mark.parametrize(
    "make", [power, constant_factor, exponential, square, sine_and_cosine], ids=lambda f: f.__name__
)
def test_functions_of_differentiable_ops_are_twice_differentiable(make: Any, device: str) -> None:
    function = make(lucid_gpu)
    extra = (2.5,) if make in (power, constant_factor) else ()
    x = lucid_gpu.tensor(X[:2, :2], device=device, requires_grad=True)
    assert gradcheck(lambda t: function.apply(t, *extra), x)
    assert gradgradcheck(lambda t: function.apply(t, *extra), x)


# --- the ctx --------------------------------------------------------------------------------------


class Double(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def test_the_ctx_is_the_node(device: str) -> None:
    seen: list[Any] = []

    class Watch(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append(ctx)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(ctx)
            return g * 2

    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = Watch.apply(x)
    ctx = y.grad_fn
    assert seen == [ctx] and isinstance(ctx, FunctionCtx)
    assert type(ctx).__name__ == ctx.name() == "WatchBackward"
    assert ctx.next_functions[0][0].variable is x
    ctx.metadata["note"] = 1
    assert ctx.metadata == {"note": 1}
    y.sum().backward()
    assert seen == [ctx, ctx]
    assert Watch.apply(x).grad_fn is not ctx


def test_needs_input_grad_is_known_everywhere(device: str) -> None:
    seen: list[Any] = []

    class Watch(Function):
        @staticmethod
        def forward(x: Any, n: int, y: Any) -> Any:
            return x * n + y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            seen.append((ctx.needs_input_grad, len(inputs)))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return g, None, g

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    Watch.apply(x, 2, x.detach()).backward()
    assert seen == [((True, False, False), 3), (True, False, False)]


def test_saved_tensors_come_back_in_order_and_as_they_were(device: str) -> None:
    class Watch(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(y)
            ctx.save_for_backward(x, None, x.exp(), y)  # replaces
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, nothing, inner, y = ctx.saved_tensors
            assert isinstance(ctx.saved_tensors, tuple)
            assert nothing is None and x is left and y is right
            assert inner.device == x.device
            assert inner.tolist() == left.exp().tolist()
            return g * y, g * x

    left = lucid_gpu.ones(2, device=device, requires_grad=True)
    right = lucid_gpu.full((2,), 3.0, device=device, requires_grad=True)
    Watch.apply(left, right).sum().backward()
    assert (left.grad.tolist(), right.grad.tolist()) == ([3.0, 3.0], [1.0, 1.0])


def test_a_saved_output_comes_back_with_its_node(device: str) -> None:
    seen: list[Any] = []

    class Watch(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            seen.append((y.grad_fn is ctx, y.requires_grad))
            return g * y

    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = Watch.apply(x)
    y.sum().backward()
    assert seen == [(True, True)]
    assert x.grad.tolist() == y.tolist()


def test_saved_tensors_are_refused_after_the_graph_was_freed(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = Double.apply(x)
    ctx = y.grad_fn
    y.sum().backward(retain_graph=True)
    assert ctx.saved_tensors[0] is x
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        ctx.saved_tensors
    y.sum().backward()  # backward does not read them
    z = power(lucid_gpu).apply(x, 2)
    z.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        z.sum().backward()


def test_a_saved_tensor_written_since_is_refused(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    h = x * 1.5
    y = power(lucid_gpu).apply(h, 2)
    h.add_(1)
    with pytest.raises(RuntimeError, match=r"(?s)modified by an inplace.*PowerBackward.*version"):
        y.sum().backward()


def test_attributes_live_as_long_as_the_node(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = power(lucid_gpu).apply(x, 4)
    y.grad_fn.note = [1, 2]
    y.sum().backward()
    assert y.grad_fn.n == 4 and y.grad_fn.note == [1, 2]


NAMES = ("outputs", "edges", "hooks", "released", "sequence", "inputs", "shape", "index")


@pytest.mark.parametrize("name", NAMES)
def test_attributes_may_have_any_ordinary_name(name: str, device: str) -> None:
    def run(m: Any, several: bool, where: str) -> Any:
        class Marked(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                setattr(ctx, name, {"factor": 3})
                return (x * 3, x * 5) if several else x * 3

            @staticmethod
            def backward(ctx: Any, g: Any, *rest: Any) -> Any:
                (x,) = ctx.saved_tensors
                return g * getattr(ctx, name)["factor"] + 0 * x

        x = m.ones(2, device=where, requires_grad=True)
        out = Marked.apply(x * 1)
        (out[0] if several else out).sum().backward()
        return x.grad

    for several in (False, True):
        gives([3.0, 3.0], lambda m, where, several=several: run(m, several, where), device)


def test_node_hooks_of_functions(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = Double.apply(x)
    y.grad_fn.register_prehook(lambda gs: tuple(g * 10 for g in gs))
    y.grad_fn.register_hook(lambda ins, outs: tuple(g + 1 for g in ins))
    y.sum().backward()
    assert x.grad.tolist() == [21.0, 21.0]


# --- forward --------------------------------------------------------------------------------------


def test_forward_is_not_recorded(device: str) -> None:
    seen: list[bool] = []

    class Watch(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            seen.append(y.requires_grad or lucid_gpu.is_grad_enabled())
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    assert Watch.apply(x).requires_grad
    with lucid_gpu.no_grad():
        y = Watch.apply(x)
    assert not y.requires_grad and y.grad_fn is None
    assert not Watch.apply(x.detach()).requires_grad
    assert seen == [False] * 3


def test_defaults_and_keywords_are_bound_by_forwards_signature(device: str) -> None:
    class Affine(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float = 2.0, shift: float = 1.0) -> Any:
            ctx.scale = scale
            return x * scale + shift

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.scale, None, None

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    assert [
        Affine.apply(x).item(),
        Affine.apply(x, 3.0).item(),
        Affine.apply(x, shift=5.0).item(),
        Affine.apply(scale=4.0, x=x).item(),
    ] == [3.0, 4.0, 7.0, 5.0]
    Affine.apply(x, shift=0.0).backward()
    assert x.grad.item() == 2.0
    with pytest.raises(TypeError):
        Affine.apply(x, color=1)


def test_methods_need_not_be_static(device: str) -> None:
    class Plain(Function):
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    Plain.apply(x).backward()
    assert x.grad.item() == 3.0


def test_what_is_no_tensor_passes_through(device: str) -> None:
    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, "word", None, 7

        @staticmethod
        def backward(ctx: Any, g: Any, *others: Any) -> Any:
            assert others == (None, None, None)
            return g * 2

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y, *rest = Mixed.apply(x)
    assert rest == ["word", None, 7]
    y.backward()
    assert x.grad.item() == 2.0


def test_an_input_returned_unchanged_comes_back_with_the_functions_node(device: str) -> None:
    class Identity(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = Identity.apply(x)
    assert y is not x and y.grad_fn.name() == "IdentityBackward" and x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]
    h = x * 2
    assert Identity.apply(h) is not h


def test_one_tensor_returned_twice_is_one_object(device: str) -> None:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return (a + b) * 2

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    a, b = Twice.apply(x)
    assert a is b


# --- backward -------------------------------------------------------------------------------------


def test_missing_gradients_arrive_as_zeros_or_none(device: str) -> None:
    seen: list[Any] = []

    def function(materialize: bool) -> Any:
        class Two(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.set_materialize_grads(materialize)
                return x * 2, x.reshape(-1, 1) * 3

            @staticmethod
            def backward(ctx: Any, a: Any, b: Any) -> Any:
                seen.append(None if b is None else (tuple(b.shape), b.tolist()))
                return a * 2

        return Two.apply

    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    function(True)(x)[0].sum().backward()
    function(False)(x)[0].sum().backward()
    assert seen == [((2, 1), [[0.0], [0.0]]), None]


def test_outputs_may_be_marked_as_having_no_gradient(device: str) -> None:
    class Largest(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            values, where = x.max(0)
            mask = (x == values).to(x.dtype)
            ctx.mark_non_differentiable(where, mask)
            ctx.save_for_backward(mask)
            return values, where, mask

        @staticmethod
        def backward(ctx: Any, g: Any, *others: Any) -> Any:
            (mask,) = ctx.saved_tensors
            assert len(others) == 2
            return g * mask

    x = lucid_gpu.tensor([1.0, 3.0, 2.0], device=device, requires_grad=True)
    values, where, mask = Largest.apply(x)
    assert (values.requires_grad, where.requires_grad, mask.requires_grad) == (True, False, False)
    values.backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_inputs_changed_in_place_are_marked_dirty(device: str) -> None:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(3)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    h = x * 2
    version = h._version
    y = Scale.apply(h)
    assert y is h and y._version == version + 2  # the write, and the mark
    assert h.grad_fn.name() == "ScaleBackward"
    (h * 2).sum().backward()
    assert x.grad.tolist() == [12.0, 12.0]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        Scale.apply(x)


def test_gradients_are_summed_to_a_broadcast_inputs_shape(device: str) -> None:
    x = lucid_gpu.ones(3, 1, device=device, requires_grad=True)
    y = lucid_gpu.ones(4, device=device, requires_grad=True)
    z = lucid_gpu.ones((), device=device, requires_grad=True)
    multiply_add(lucid_gpu).apply(x, y, z).sum().backward()
    assert x.grad.tolist() == [[4.0]] * 3
    assert y.grad.tolist() == [3.0] * 4
    assert z.grad.item() == 12.0


def test_trailing_nones_may_be_left_off_or_added(device: str) -> None:
    def function(extra: int) -> Any:
        class Some(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, a: int, b: int) -> Any:
                return x * a * b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return (g * 6, None, None, *[None] * extra)

        return Some.apply

    for extra in (0, 2):
        x = lucid_gpu.ones(1, device=device, requires_grad=True)
        function(extra)(x, 2, 3).backward()
        assert x.grad.item() == 6.0


def test_a_gradient_of_none_stays_undefined(device: str) -> None:
    class Stop(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    Stop.apply(x).backward()
    assert x.grad is None


def test_vjp_is_another_name_for_backward(device: str) -> None:
    class Named(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * 2

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    Named.apply(x).backward()
    assert x.grad.item() == 2.0


def test_once_differentiable_refuses_a_second_derivative(device: str) -> None:
    class Once(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            assert not lucid_gpu.is_grad_enabled()
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = lucid_gpu.tensor([3.0], device=device, requires_grad=True)
    (g,) = lucid_gpu.autograd.grad(Once.apply(x), x, create_graph=True)
    assert g.item() == 6.0
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        g.backward()
    Once.apply(x).backward()
    assert x.grad.item() == 6.0


def test_buffers_of_numpy_slot_in_without_a_copy() -> None:
    class Sine(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return lucid_gpu.as_tensor(np.sin(x.numpy()))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return lucid_gpu.as_tensor(np.cos(x.numpy()) * g.numpy())

    x = lucid_gpu.tensor([0.5, 1.0], requires_grad=True)
    Sine.apply(x).sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), np.cos([0.5, 1.0]), rtol=1e-6)


def test_many_applies_in_a_row(device: str) -> None:
    x = lucid_gpu.full((256,), 0.999, device=device, requires_grad=True)
    y = x
    function = power(lucid_gpu)
    for _ in range(500):
        y = function.apply(y, 1.001)
    y.sum().backward()
    torch = torch_module()
    t = torch.full((256,), 0.999, requires_grad=True)
    z = t
    for _ in range(500):
        z = z**1.001
    z.sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), t.grad.tolist(), rtol=1e-4)


def test_functions_run_on_several_threads(device: str) -> None:
    found: list[float] = []

    def work(n: int) -> None:
        x = lucid_gpu.full((3,), 2.0, device=device, requires_grad=True)
        for _ in range(20):
            x.grad = None
            power(lucid_gpu).apply(x, n).sum().backward()
        found.append(x.grad[0].item() - n * 2.0 ** (n - 1))

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0.0] * 4


# --- misuse ---------------------------------------------------------------------------------------


def returns(m: Any, *values: Any, inputs: int = 1) -> Any:
    """Run backward of a function whose backward returns given values."""

    class Wrong(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float = 2.0) -> Any:
            return x * scale

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return tuple(v(m, g) if callable(v) else v for v in values)

    x = m.ones(2, 3, requires_grad=True)
    return Wrong.apply(x, 2.0).sum().backward()


def gradient(m: Any, g: Any) -> Any:
    return g


def saves(m: Any, value: Any) -> Any:
    class Saves(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x, value)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    return Saves.apply(m.ones(2, requires_grad=True))


def without(m: Any, *names: str) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        return g

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    for name in names:
        del body[name]
    return type("Partial", (m.autograd.Function,), body)


def both_names(m: Any) -> Any:
    function = without(m)
    function.vjp = staticmethod(lambda ctx, g: g)
    return function.apply(m.ones(1, requires_grad=True)).backward()


MISUSE: dict[str, tuple[Any, str]] = {
    "too few gradients": (
        lambda m: returns(m, gradient),
        "returned an incorrect number of gradients (expected 2, got 1)",
    ),
    "too many gradients": (
        lambda m: returns(m, gradient, None, gradient),
        "returned an incorrect number of gradients (expected 2, got 3)",
    ),
    "a gradient for a number": (
        lambda m: returns(m, gradient, gradient),
        "returned a gradient different than None at position 2, but the corresponding forward "
        "input was not a Variable",
    ),
    "a gradient of another shape": (
        lambda m: returns(m, lambda m, g: g[:, :2], None),
        "returned an invalid gradient at index 0 - got [2, 2] but expected shape compatible with "
        "[2, 3]",
    ),
    "a gradient that is no tensor": (lambda m: returns(m, 3.0, None), "expected Variable or None"),
    "saving a number": (lambda m: saves(m, 3), "save_for_backward can only save variables"),
    "calling an instance": (
        lambda m: without(m)()(m.ones(1)),
        "Legacy autograd function with non-static forward method is deprecated",
    ),
    "no forward": (
        lambda m: without(m, "forward").apply(m.ones(1, requires_grad=True)),
        "You must implement the forward function for custom autograd.Function",
    ),
    "no backward": (
        lambda m: without(m, "backward").apply(m.ones(1, requires_grad=True)).backward(),
        "You must implement either the backward or vjp method",
    ),
    "both names of backward": (
        both_names,
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed",
    ),
}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


def test_a_wrong_count_names_the_function_and_its_parameters() -> None:
    with pytest.raises(RuntimeError, match=r"Wrong.backward must return .*\(x, scale\)"):
        returns(lucid_gpu, gradient)


def test_an_error_in_backward_passes_unchanged(device: str) -> None:
    class Fails(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise KeyError("mine")

    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    with pytest.raises(KeyError, match="mine"):
        Fails.apply(x).backward()
    assert lucid_gpu.is_grad_enabled()


def test_an_error_in_forward_leaves_recording_on(device: str) -> None:
    class Fails(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Fails.apply(lucid_gpu.ones(1, device=device, requires_grad=True))
    assert lucid_gpu.is_grad_enabled()
