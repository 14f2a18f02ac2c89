"""grad, vjp, jacrev, hessian: PyTorch's results, structures, graphs and sentences."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.func import grad, grad_and_value, jacrev, value_and_grad, vjp
from lucid_gpu.fusion import eager
from tests.func.comparing import agree, tensor
from tests.oracle import modules, same_error

pytestmark = pytest.mark.usefixtures("on_device")


class Pair(NamedTuple):
    a: Any
    b: Any


def x3(m: Any) -> Any:
    return tensor(m, 3)


def cubes(x: Any) -> Any:
    return (x**3).sum()


def test_grad_of_one_and_of_several_arguments() -> None:
    agree(lambda m: m.func.grad(cubes)(x3(m)))
    agree(lambda m: m.func.grad(lambda x, y: (x * y.sin()).sum(), (0, 1))(x3(m), x3(m)))
    agree(lambda m: m.func.grad(lambda x, y: (x * y.sin()).sum(), -1)(x3(m), x3(m)))
    agree(lambda m: m.func.grad(lambda x, k=1: (x * k).sum())(x3(m), k=2))


def test_trees_of_inputs_and_outputs() -> None:
    agree(lambda m: m.func.grad(lambda p: (p["a"] * p["b"][0] ** 2).sum())(
        {"a": x3(m), "b": (x3(m), x3(m))}
    ))  # fmt: skip
    agree(lambda m: list(m.func.grad(lambda p: (p.a * p.b).sum())(Pair(x3(m), x3(m)))))
    agree(lambda m: m.func.vjp(lambda p: {"o": p["a"] * 2}, {"a": x3(m)})[1]({"o": x3(m)}))
    agree(lambda m: m.func.jacrev(lambda p: {"o": p["a"] * 2, "s": [p["a"].sum()]})({"a": x3(m)}))
    agree(lambda m: m.func.jacrev(lambda x, y: (x * y, x.sum()), (0, 1))(x3(m), x3(m)))
    found = grad(lambda p: (p.a * p.b).sum())(Pair(lucid_gpu.ones(2), lucid_gpu.ones(2)))
    assert type(found) is Pair


def test_has_aux() -> None:
    agree(lambda m: m.func.grad(lambda x: (x.sum(), {"k": x * 2}), has_aux=True)(x3(m)))
    agree(lambda m: m.func.grad_and_value(lambda x: (x.sum(), x), has_aux=True)(x3(m)))
    agree(lambda m: m.func.grad_and_value(cubes)(x3(m)))
    agree(lambda m: m.func.jacrev(lambda x: (x**2, {"k": x}), has_aux=True)(x3(m)))
    agree(lambda m: m.func.vjp(lambda x: (x.sum(), x), x3(m), has_aux=True)[2])
    x = lucid_gpu.tensor([1.0, 2.0])
    value, slope = value_and_grad(cubes)(x)
    assert value.item() == 9.0 and slope.tolist() == [3.0, 12.0]
    (value, aux), slope = value_and_grad(lambda x: (cubes(x), x + 1), has_aux=True)(x)
    assert aux.tolist() == [2.0, 3.0] and not value.requires_grad


@pytest.mark.parametrize("aux", ["more", 1, None, [1.0], {"k": 2}], ids=repr)
@pytest.mark.parametrize("name", ["grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd"])
def test_aux_of_other_things_than_tensors_is_refused(name: str, aux: Any) -> None:
    def scenario(m: Any) -> Any:
        x, function = m.ones(2), getattr(m.func, name)
        if name == "vjp":
            return function(lambda x: (x.sum(), aux), x, has_aux=True)
        if name == "jvp":
            return function(lambda x: (x.sum(), aux), (x,), (x,), has_aux=True)
        return function(lambda x: (x.sum(), aux), has_aux=True)(x)

    same_error(scenario, "Expected tensors, got unsupported type <class")


def test_derivatives_nest() -> None:
    agree(lambda m: m.func.grad(m.func.grad(lambda x: x.sin()))(tensor(m)))
    agree(lambda m: m.func.grad(m.func.grad(m.func.grad(lambda x: x.exp() * x)))(tensor(m)))
    agree(lambda m: m.func.grad(lambda x: (m.func.grad(cubes)(x) * x).sum())(x3(m)))
    agree(lambda m: m.func.grad(lambda x: m.func.grad(lambda y: x * y * y)(x))(tensor(m)))
    agree(lambda m: m.func.jacrev(m.func.jacrev(lambda x: (x**3).sum() * x))(x3(m)))


def test_hessian() -> None:
    agree(lambda m: m.func.hessian(lambda x: (x.sin() * x.sum()).sum())(x3(m)))
    agree(lambda m: m.func.hessian(lambda x, y: (x**3 * y).sum(), (0, 1))(x3(m), x3(m)))
    agree(lambda m: m.vmap(m.func.hessian(cubes))(tensor(m, 2, 3)))


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 3, 7])
def test_jacrev_in_chunks(chunk_size: Any) -> None:
    agree(lambda m: m.func.jacrev(lambda x: (x.sin(), x * x.sum()), chunk_size=chunk_size)(x3(m)))


def test_unused_arguments_have_gradients_of_zero() -> None:
    agree(lambda m: m.func.grad(lambda x, y: x.sum(), (0, 1))(x3(m), x3(m)))
    agree(lambda m: m.func.jacrev(lambda x, y: x, 1)(x3(m), x3(m)))
    agree(lambda m: m.func.grad(lambda x: m.ones(()).double())(x3(m)))


GRAPHS = {
    "of a plain tensor": lambda m, x, w: m.func.grad(cubes)(x.detach()),
    "of a tensor with history": lambda m, x, w: m.func.grad(cubes)(x),
    "constant, of a tensor with history": lambda m, x, w: m.func.grad(lambda x: x.sum())(x),
    "of a function that closes over one": lambda m, x, w: m.func.grad(
        lambda x: (x**2 * w).sum()
    )(x.detach()),
    "that does not depend on what it closes over": lambda m, x, w: m.func.grad(
        lambda x: (x * 2 + w).sum()
    )(x.detach()),
    "value": lambda m, x, w: m.func.grad_and_value(cubes)(x.detach())[1],
    "value with history": lambda m, x, w: m.func.grad_and_value(cubes)(x)[1],
    "output of vjp": lambda m, x, w: m.func.vjp(lambda x: x * 2, x.detach())[0],
    "output of vjp with history": lambda m, x, w: m.func.vjp(lambda x: x * w, x.detach())[0],
    "vjp": lambda m, x, w: m.func.vjp(lambda x: x * 2, x.detach())[1](x.detach())[0],
    "vjp of a cotangent with history": lambda m, x, w: m.func.vjp(
        lambda x: x * 2, x.detach()
    )[1](w)[0],
    "jacrev": lambda m, x, w: m.func.jacrev(lambda x: x**2)(x),
    "jacrev of a plain tensor": lambda m, x, w: m.func.jacrev(lambda x: x**2)(x.detach()),
}  # fmt: skip


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_results_have_a_graph_where_it_leads_somewhere(name: str, recording: bool) -> None:
    def call(m: Any) -> Any:
        x, w = x3(m).requires_grad_(), tensor(m, 3, seed=1).requires_grad_()
        with m.set_grad_enabled(recording):
            found = GRAPHS[name](m, x, w)
        second: Any = ()
        if found.requires_grad:
            second = m.autograd.grad(found.sum(), (x, w), materialize_grads=True)
        return [found, found.requires_grad, second]

    agree(call)


def test_no_grad_inside_is_respected() -> None:
    def f(m: Any) -> Any:
        def inner(x: Any) -> Any:
            with m.no_grad():
                y = x**2
            return (x - y).sum()

        return inner

    agree(lambda m: m.func.grad(f(m))(x3(m)))


def test_autograd_grad_inside() -> None:
    agree(lambda m: m.func.grad(
        lambda x: m.autograd.grad((x**3).sum(), x, create_graph=True)[0].sum()
    )(x3(m)))  # fmt: skip


def test_inputs_are_left_as_they_are() -> None:
    x = lucid_gpu.tensor([1.0, 2.0])
    grad(cubes)(x)
    assert not x.requires_grad and x.grad is None and x._version == 0
    leaf = lucid_gpu.tensor([1.0, 2.0], requires_grad=True)
    grad(cubes)(leaf)
    assert leaf.grad is None and leaf.is_leaf
    same_error(lambda m: m.func.grad(lambda x: x.mul_(2).sum())(m.ones(2)), "a leaf Variable")


def test_vjp_may_be_called_again() -> None:
    x = lucid_gpu.tensor([1.0, 2.0])
    _, pull = vjp(lambda x: x**2, x)
    one = lucid_gpu.ones(2)
    assert pull(one)[0].tolist() == pull(one)[0].tolist() == [2.0, 4.0]


def test_custom_functions_are_differentiated() -> None:
    def square(m: Any) -> Any:
        class Square(m.autograd.Function):
            @staticmethod
            def forward(x: Any) -> Any:
                return x * x

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(inputs[0])

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return 2 * ctx.saved_tensors[0] * g

        return Square.apply

    agree(lambda m: m.func.grad(lambda x: square(m)(x).sum())(x3(m)))
    agree(lambda m: m.func.grad(m.func.grad(lambda x: square(m)(x)))(tensor(m)))
    agree(lambda m: m.func.jacrev(square(m))(x3(m)))


def test_nothing_is_left_behind() -> None:
    x = lucid_gpu.randn(3)
    seen = []

    def f(x: Any) -> Any:
        seen.append(weakref.ref(x))
        return (x**3).sum()

    grad_and_value(f)(x)
    _, pull = vjp(f, x)
    pull(lucid_gpu.tensor(1.0))
    del pull
    gc.collect()
    assert [r() for r in seen] == [None, None]


WRONG = [
    ("of no scalar", lambda m: m.func.grad(lambda x: x)(m.ones(2)), "got tensor with 1 dims"),
    ("of no tensor", lambda m: m.func.grad(lambda x: 1.0)(m.ones(2)), "to return a Tensor"),
    ("of a tuple", lambda m: m.func.grad(lambda x: (x.sum(),))(m.ones(2)), "to return a Tensor"),
    ("without aux", lambda m: m.func.grad(cubes, has_aux=True)(m.ones(2)), "(output, aux)"),
    ("argnums too large", lambda m: m.func.grad(cubes, 5)(m.ones(2)), "Got argnum=5, but only 1"),
    ("argnums a string", lambda m: m.func.grad(cubes, "a")(m.ones(2)), "argnums must be int or"),
    ("no argnums", lambda m: m.func.grad(cubes, ())(m.ones(2)), "argnums must be non-empty"),
    ("argnums twice", lambda m: m.func.grad(cubes, (0, 0))(m.ones(2)), "must be unique"),
    ("of a number", lambda m: m.func.grad(lambda x: x)(3.0), "must be Tensor, got"),
    ("of integers", lambda m: m.func.grad(cubes)(m.tensor([1])), "only Tensors of floating point"),
    (
        "complex",
        lambda m: m.func.grad(lambda x: x.sum())(m.ones(2, dtype=m.complex64)),
        "real scalar",
    ),
    (
        "cotangents of another structure",
        lambda m: m.func.vjp(lambda x: (x, x), m.ones(2))[1](m.ones(2)),
        "cotangents: *, primal output: (*, *)",
    ),
    (
        "cotangents of another shape",
        lambda m: m.func.vjp(lambda x: x, m.ones(2))[1](m.ones(3)),
        "Mismatch in shape",
    ),
    ("vjp of no tensor", lambda m: m.func.vjp(lambda x: 3, m.ones(2)), "got unsupported type"),
    ("vjp of nothing", lambda m: m.func.vjp(lambda x: None, m.ones(2)), "non-empty output"),
    ("jacrev of nothing", lambda m: m.func.jacrev(lambda x: ())(m.ones(2)), "non-empty output"),
    (
        "a leaf marked inside",
        lambda m: m.func.grad(lambda x: x.requires_grad_().sum())(m.ones(2)),
        "You are attempting to call Tensor.requires_grad_()",
    ),
    (
        "a leaf marked inside, batched",
        lambda m: m.vmap(m.func.grad(lambda x: x.requires_grad_().sum()))(m.ones(2, 2)),
        "You are attempting to call Tensor.requires_grad_()",
    ),
    (
        "a Jacobian of autograd's inside",
        lambda m: m.func.grad(
            lambda x: m.autograd.functional.jacobian(lambda t: t.sin().sum(), x).sum()
        )(m.ones(2)),
        "torch.autograd.functional.* APIs",
    ),
    (
        "retain_grad inside",
        lambda m: m.func.grad(lambda x: (x * 2).sum().retain_grad())(m.ones(2)),
        "You are attempting to call Tensor.retain_grad()",
    ),
    (
        "backward inside",
        lambda m: m.func.grad(lambda x: x.sum().backward())(m.ones(2)),
        "backward() called inside a functorch transform.",
    ),
    (
        "models that differ in what requires grad",
        lambda m: m.func.stack_module_state(
            [m.nn.Linear(1, 1), m.nn.Linear(1, 1).requires_grad_(False)]
        ),
        "to have the same .requires_grad",
    ),
    ("chunk_size 0", lambda m: m.func.jacrev(cubes, chunk_size=0)(m.ones(2)), "`chunk_size`"),
]  # fmt: skip


@pytest.mark.parametrize("one", WRONG, ids=[w[0] for w in WRONG])
def test_wrong_calls_say_what_was_expected(one: Any) -> None:
    same_error(one[1], one[2])


@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "hessian"])
def test_transforms_differentiate_inside_inference_mode(name: str, made_inside: bool) -> None:
    def differentiated(m: Any) -> Any:
        outside = tensor(m, 3)
        with m.inference_mode():
            x = outside.clone() if made_inside else outside
            found = getattr(m.func, name)(lambda t: (m.softmax(t, 0) * t).sum())(x)
            pulled = m.func.vjp(lambda t: m.softmax(t, 0), x)[1](outside)[0]
        return found.clone(), pulled.clone()

    agree(differentiated)


def test_inference_tensors_are_differentiated_outside_of_inference_mode() -> None:
    def differentiated(m: Any) -> Any:
        with m.inference_mode():
            x = tensor(m, 3).clone()
        return m.func.grad(lambda t: (t * t).sum())(x), m.func.jacfwd(lambda t: t.sin())(x)

    agree(differentiated)


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
def test_jacobians_of_complex_tensors_are_refused(name: str) -> None:
    def run(m: Any, into: bool) -> Any:
        x = tensor(m, 3)
        if into:
            return getattr(m.func, name)(lambda t: m.complex(t, t))(x)
        return getattr(m.func, name)(lambda t: t * t)(m.complex(x, x))

    same_error(lambda m: run(m, False), "received complex tensor at flattened input idx: 0")
    same_error(lambda m: run(m, True), "Expected all outputs to be real but received complex")


CAPTURED = {  # a write to what was made outside, and the same value out of place
    "all": (lambda c, v, x: c.copy_(x.expand(2, 3)), lambda c, x: x.expand(2, 3)),
    "added": (lambda c, v, x: c.add_(x), lambda c, x: c + x),
    "an element": (lambda c, v, x: c.__setitem__((0, 1), x[0]), lambda c, x: with_element(c, x)),
    "a view": (lambda c, v, x: v.mul_(x), lambda c, x: lucid_gpu.stack([c[0], c[1] * x])),
    "twice": (lambda c, v, x: c.add_(x).mul_(x), lambda c, x: (c + x) * x),
}
TRANSFORMS = {
    "grad": lambda f, x: grad(lambda x: f(x).sum())(x),
    "vjp": lambda f, x: vjp(f, x)[1](lucid_gpu.ones(2, 3))[0],
    "jacrev": lambda f, x: jacrev(f)(x).sum((0, 1)),
    "grad of grad": lambda f, x: grad(lambda x: grad(lambda y: f(y).sum())(x).sum())(x),
}


def with_element(c, x):
    first = lucid_gpu.stack([c[0, 0], x[0], c[0, 2]])
    return lucid_gpu.stack([first, c[1]])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", CAPTURED)
def test_what_a_function_writes_of_others_has_no_history_afterwards(name, transform):
    """PyTorch refuses the write; here its value stays, and the gradient is that of it."""
    write, value = CAPTURED[name]
    x = lucid_gpu.tensor([1.0, 2.0, 3.0])
    captured = lucid_gpu.arange(6.0).reshape(2, 3).clone()
    start, view, other = captured.clone(), captured[1], captured[:, 0]

    def writing(x):
        write(captured, view, x)
        return captured * x * x

    wanted = TRANSFORMS[transform](lambda x: value(start, x) * x * x, x)
    got = TRANSFORMS[transform](writing, x)
    assert got.tolist() == wanted.tolist()
    assert captured.tolist() == value(start, x).tolist()
    for t in (captured, view, other, got):
        assert not t.requires_grad
        assert t.grad_fn is None
    given = start.clone()
    out, pull = vjp(lambda x: (write(given, given[1], x), given)[1], x)  # it may be the result
    assert not out.requires_grad
    assert not given.requires_grad
    slope = vjp(lambda x: value(start, x), x)[1](lucid_gpu.ones(2, 3))[0]
    assert pull(lucid_gpu.ones(2, 3))[0].tolist() == slope.tolist()
    view.add_(1)
    assert other[1].item() == captured[1, 0].item() == view[0].item()


# --- what a function stops, second derivatives of batches do not pass -----------------------------


def _stopped(m: Any) -> dict[str, Callable[[Any], Any]]:
    def unrecorded(x: Any) -> Any:
        with m.no_grad():
            s = x.sin() * x
        return x.exp() * s

    def unrecorded_later(x: Any) -> Any:
        y = x * 3
        with m.no_grad():
            s = y * x
        return m.where(x > 0.5, x * x, s * x)

    return {
        "no_grad": unrecorded,
        "no_grad of a pending value": unrecorded_later,
        "detach": lambda x: (x * 2).detach().exp() * x * x,
        "detach of an operand": lambda x: x * x.detach() * x,
        "broadcast": lambda x: ((x[:, None] * 2).detach() * x * x[0]).sum(0),
    }


BATCHES: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "jacrev": lambda m, f: lambda x: m.func.jacrev(f)(x).sum(0),
    "vmap of vjp": lambda m, f: lambda x: m.vmap(m.func.vjp(f, x)[1])(_units(m, f(x)))[0].sum(0),
}


def _units(m: Any, like: Any) -> Any:
    return m.eye(like.numel(), dtype=like.dtype).reshape(like.numel(), *like.shape)


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "eager"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", [*_stopped(lucid_gpu)])
def test_stopped_gradients_stay_stopped_in_batches(name: str, batch: str, mode: bool) -> None:
    def call(m: Any) -> Any:
        f = _stopped(m)[name]
        slope = BATCHES[batch](m, f)
        x = m.tensor([0.4, 0.9, 1.3], dtype=m.float64)
        second = [m.func.jacrev(slope)(x), m.func.vjp(slope, x)[1](m.ones_like(x))[0]]
        leaf = m.tensor([0.4, 0.9, 1.3], dtype=m.float64, requires_grad=True)
        y = f(leaf)
        (g,) = m.autograd.grad(y, leaf, _units(m, y), create_graph=True, is_grads_batched=True)
        cubic = m.func.grad(lambda x: (m.func.jacrev(slope)(x) ** 2).sum())(x)
        return [*second, m.autograd.grad((g**3).sum(), leaf)[0], cubic]

    with eager(mode):
        agree(call)


def beyond(x: Any) -> Any:
    return (x.as_strided((2, 2), (1, 2), 0) ** 2).sum()


def read_beyond_by_grad(m: Any, x: Any) -> Any:
    return m.func.grad(beyond)(x)


def read_beyond_by_vjp(m: Any, x: Any) -> Any:
    value, pull = m.func.vjp(beyond, x)
    return value, pull(m.ones(()))[0]


def read_beyond_by_jacrev(m: Any, x: Any) -> Any:
    return m.func.jacrev(beyond)(x)


def value_linearized(m: Any, x: Any) -> Any:
    return m.func.linearize(beyond, x)[0]


@pytest.mark.parametrize(
    "differentiate",
    [read_beyond_by_grad, read_beyond_by_vjp, read_beyond_by_jacrev, value_linearized],
)
@pytest.mark.parametrize("needs_grad", [False, True])
def test_views_of_an_argument_see_the_memory_of_the_callers_tensor(
    differentiate: Callable[..., Any], needs_grad: bool
) -> None:
    def run(m: Any) -> Any:
        x = m.arange(6.0).requires_grad_(needs_grad).reshape(2, 3).t()[1:]
        return differentiate(m, x)

    agree(run)


def write_recording_nothing(m: Any, x: Any) -> Any:
    y = x[0]
    with m.no_grad():
        y.add_(1)
    return (x * x).sum()


def write_detached(m: Any, x: Any) -> Any:
    x.detach().add_(1)
    return (x * x).sum()


@pytest.mark.parametrize("write", [write_recording_nothing, write_detached])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_writes_to_an_argument_reach_the_callers_tensor(
    write: Callable[..., Any], needs_grad: bool
) -> None:
    def run(m: Any) -> Any:
        x = m.arange(6.0).requires_grad_(needs_grad)
        gradient = m.func.grad(lambda y: write(m, y))(x)
        return gradient.detach(), x.detach()

    agree(run)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_recorded_writes_to_an_argument_are_refused(needs_grad: bool) -> None:
    x = lucid_gpu.arange(3.0).requires_grad_(needs_grad) * 1
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        grad(lambda y: (y.mul_(2) * y).sum())(x)
    assert x.tolist() == [0, 1, 2]


RETURNING = {
    "jvp": lambda m, f, x: m.func.jvp(f, (x,), (x,)),
    "vjp": lambda m, f, x: m.func.vjp(f, x),
    "grad": lambda m, f, x: m.func.grad(f)(x),
    "jacrev": lambda m, f, x: m.func.jacrev(f)(x),
    "jacfwd": lambda m, f, x: m.func.jacfwd(f)(x),
    "hessian": lambda m, f, x: m.func.hessian(f)(x),
    "vmap": lambda m, f, x: m.func.vmap(f)(x),
}


@pytest.mark.parametrize("name", RETURNING)
def test_functions_that_return_arrays_are_refused(name):
    for m, _ in modules():
        with pytest.raises((RuntimeError, ValueError), match="return"):
            RETURNING[name](m, lambda x: np.array([1.0, 2.0]), m.ones(2))
