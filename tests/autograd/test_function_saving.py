"""save_for_backward, what backward may return, and second derivatives of Functions."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.autograd.function import once_differentiable
from tests.autograd.functions import gradient, leaf, make
from tests.oracle import gives, refuses


def saved_first(ctx: Any, g: Any) -> Any:
    """A backward that multiplies by the first saved tensor."""
    return g * ctx.saved_tensors[0]


def saving(m: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    return make(m, forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0])


def saving_output(m: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    return make(m, forward, saved_first)


# --- saved_tensors --------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "kind"), [([], "list"), ("a", "str"), (3, "int")])
def test_only_tensors_and_none_are_saved(value: Any, kind: str, device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x, value)
            return x * 2

        make(m, forward).apply(leaf(m, d))

    words = f"save_for_backward can only save variables, but argument 1 is of type {kind}"
    refuses(TypeError, words, scenario, device)


def test_nothing_saved_is_an_empty_tuple(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        node = make(m, lambda ctx, x: x * 2).apply(leaf(m, d)).grad_fn
        return [isinstance(node.saved_tensors, tuple), len(node.saved_tensors)]

    gives([True, 0], scenario, device)


def test_a_saved_input_is_the_very_same_object(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x  # and it stays an input though it is returned

        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.extend([x is h, x is y, x.requires_grad, x.grad_fn is h.grad_fn])
            return g * x

        x = leaf(m, d)
        h = x * 2
        y = make(m, forward, backward).apply(h)
        y.sum().backward()
        return [seen, x.grad]

    gives([[True, False, True, True], [4.0, 8.0, 12.0]], scenario, device)


def test_a_saved_output_is_an_equal_tensor_with_the_same_history(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.save_for_backward(y)
            return x * 3, y

        def backward(ctx: Any, g: Any, h: Any) -> Any:
            (t,) = ctx.saved_tensors
            seen.extend([t is y, t.grad_fn is ctx, t.output_nr, t.tolist()])
            return g * 3 + h * 2

        x = leaf(m, d)
        _, y = make(m, forward, backward).apply(x)
        y.sum().backward()
        return [seen, x.grad]

    gives([[False, True, 1, [2.0, 4.0, 6.0]], [2.0] * 3], scenario, device)


def test_a_saved_constant_output_has_no_history(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            constant = x * 0.5
            ctx.mark_non_differentiable(constant)
            ctx.save_for_backward(constant)
            return x * x, constant

        def backward(ctx: Any, g: Any, _: Any) -> Any:
            (t,) = ctx.saved_tensors
            seen.extend([t.requires_grad, t.grad_fn, t is constant])
            return g * 4 * t

        x = leaf(m, d)
        y, constant = make(m, forward, backward).apply(x)
        y.sum().backward()
        return [seen, x.grad]

    gives([[False, None, True], [2.0, 4.0, 6.0]], scenario, device)


def test_setup_context_must_not_save_an_input_that_is_returned(device: str) -> None:
    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    def scenario(m: Any, d: str) -> Any:
        make(m, lambda x: x, saved_first, save).apply(leaf(m, d))

    def one_of_two(m: Any, d: str) -> Any:
        make(m, lambda x: (x, x * 2), saved_first, save).apply(leaf(m, d))

    def a_view_instead(m: Any, d: str) -> Any:
        def save_output(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(output)

        return gradient(make(m, lambda x: x.view_as(x), saved_first, save_output), leaf(m, d))

    words = "input that has been returned as-is as output is being saved for backward"
    refuses(RuntimeError, words, scenario, device)
    refuses(RuntimeError, words, one_of_two, device)
    gives([1.0, 2.0, 3.0], a_view_instead, device)


def test_saved_tensors_stay_usable_after_a_backward_that_retains_the_graph(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        y = saving(m).apply(x)
        node = y.grad_fn
        y.sum().backward(retain_graph=True)
        same = node.saved_tensors[0] is x
        y.sum().backward()
        return [same, x.grad]

    gives([True, [4.0, 8.0, 12.0]], scenario, device)


@pytest.mark.parametrize("count", [0, 1])
def test_saved_tensors_of_a_freed_graph_are_refused(count: int, device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(*[x] * count)
            return x * 2

        y = make(m, forward, lambda ctx, g: g * 2).apply(leaf(m, d))
        y.sum().backward()
        y.sum().backward()  # backward does not read them
        y.grad_fn.saved_tensors

    words = "Trying to backward through the graph a second time (or directly access saved tensors"
    refuses(RuntimeError, words, scenario, device)


@pytest.mark.parametrize("through", ["input", "view of the input", "output", "view of the output"])
@pytest.mark.parametrize("when", ["in backward", "when read"])
def test_a_saved_tensor_changed_in_place_is_refused(through: str, when: str, device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        h = leaf(m, d) * 1
        y = (saving if "input" in through else saving_output)(m).apply(h)
        node = y.grad_fn
        changed = h if "input" in through else y
        (changed[0] if "view" in through else changed).add_(1)
        if when == "when read":
            node.saved_tensors
        y.sum().backward()

    words = "one of the variables needed for gradient computation has been modified by an inplace"
    refuses(RuntimeError, words, scenario, device)
    refuses(RuntimeError, "is at version 1; expected version 0 instead", scenario, device)


def test_the_error_of_a_changed_saved_tensor_names_the_function(device: str) -> None:
    h = leaf(lucid_gpu, device) * 1
    y = saving(lucid_gpu).apply(h)
    h.add_(1)
    with pytest.raises(RuntimeError, match=r"(?s)\[3\].*CustomBackward.*Write the change out of"):
        y.sum().backward()


def test_a_leaf_changed_without_recording_is_refused_too(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        y = saving(m).apply(x)
        with m.no_grad():
            x.add_(1)
        y.sum().backward()

    refuses(RuntimeError, "is at version 1; expected version 0 instead", scenario, device)


def test_a_tensor_changed_in_forward_after_it_was_saved_is_taken_as_it_is_at_the_end(
    device: str,
) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            t = x * 2
            ctx.save_for_backward(t)
            t.add_(1)
            return x * 2

        return gradient(make(m, forward, saved_first), leaf(m, d))

    gives([3.0, 5.0, 7.0], scenario, device)


# --- what backward returns ------------------------------------------------------------------------


def returning(m: Any, *gradients: Any) -> Any:
    """A Function of a tensor and what else it is given."""

    def backward(ctx: Any, g: Any) -> Any:
        return tuple([f(g) if callable(f) else f for f in gradients])

    return make(m, lambda ctx, x, *others: x * 2, backward)


def as_it_is(g: Any) -> Any:
    return g


def test_gradients_are_summed_and_cast_to_the_input(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        summed = gradient(returning(m, lambda g: m.ones(4, 3, device=d)), leaf(m, d))
        double = gradient(returning(m, lambda g: g.double()), leaf(m, d))
        whole = gradient(returning(m, lambda g: g.long()), leaf(m, d))
        return [summed, double, double.dtype is m.float32, whole, whole.dtype is m.float32]

    gives([[4.0] * 3, [1.0] * 3, True, [1.0] * 3, True], scenario, device)


def test_a_complex_gradient_of_a_real_input_is_refused(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        gradient(returning(m, lambda g: g * 1j), leaf(m, d))

    words = "isFloatingType(grad.scalar_type()) || (input_is_complex == grad_is_complex)"
    refuses(RuntimeError, words, scenario, device)


def test_a_real_gradient_of_a_complex_input_is_cast(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = m.tensor([1 + 2j, 3 - 1j], device=d, requires_grad=True)
        make(m, lambda ctx, x: x.abs(), lambda ctx, g: g * 2).apply(x).sum().backward()
        return x.grad

    gives([2 + 0j, 2 + 0j], scenario, device)


def test_a_gradient_nobody_needs_is_dropped_whatever_its_shape(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        k = m.ones(3, device=d)
        return gradient(returning(m, as_it_is, lambda g: g[:2]), leaf(m, d), k)

    gives([1.0] * 3, scenario, device)


def test_a_gradient_smaller_than_its_input_is_refused(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        gradient(returning(m, lambda g: m.ones(1, device=d)), leaf(m, d))

    words = "invalid gradient at index 0 - got [1] but expected shape compatible with [3]"
    refuses(RuntimeError, words, scenario, device)


def test_a_list_is_no_tuple(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        function = make(m, lambda ctx, x: x * 2, lambda ctx, g: [g])
        gradient(function, leaf(m, d))

    refuses(RuntimeError, "expected Variable or None (got list)", scenario, device)


def test_errors_of_backward_name_position_and_parameter() -> None:
    def forward(ctx: Any, x: Any, scale: Any, y: Any) -> Any:
        return x * 2

    def run(*gradients: Any) -> None:
        function = make(lucid_gpu, forward, lambda ctx, g: gradients)
        x = leaf(lucid_gpu, "cpu")
        gradient(function, x, 2.0, x * 2)

    one = lucid_gpu.ones(3)
    with pytest.raises(
        RuntimeError, match=r"\(x, scale, y\); got 1. Return a gradient or None for scale and y."
    ):
        run(one)
    with pytest.raises(
        RuntimeError, match="different than None at position 2.* return None for scale"
    ):
        run(one, one, one)
    with pytest.raises(RuntimeError, match=r"\(got str\) as gradient 2, of y"):
        run(one, None, "a")


# --- second derivatives ---------------------------------------------------------------------------


def second(m: Any, function: Any, x: Any, *rest: Any) -> Any:
    """The gradient of the sum of the gradient."""
    y = function.apply(x, *rest)
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    return m.autograd.grad(g.sum(), x)[0]


def test_backward_is_recorded_only_under_create_graph(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[bool] = []

        def backward(ctx: Any, g: Any) -> Any:
            seen.append(m.is_grad_enabled())
            return g * 2

        x = leaf(m, d)
        y = make(m, lambda ctx, x: x * 2, backward).apply(x).sum()
        y.backward(retain_graph=True)
        m.autograd.grad(y, x, create_graph=True)
        return seen

    gives([False, True], scenario, device)


def test_a_saved_output_carries_second_derivatives(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        return second(m, saving_output(m), leaf(m, d, 0.0, 0.0))

    gives([1.0, 1.0], scenario, device)


def test_an_intermediate_that_is_returned_carries_second_derivatives(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            e = x.exp()
            ctx.save_for_backward(e)
            return e * 2, e

        def backward(ctx: Any, g: Any, h: Any) -> Any:
            (e,) = ctx.saved_tensors
            return g * 2 * e + h * e

        x = leaf(m, d, 0.0, 0.0)
        y, _ = make(m, forward, backward).apply(x)
        (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
        return m.autograd.grad(g.sum(), x)[0]

    gives([2.0, 2.0], scenario, device)


INTERMEDIATES: dict[str, Any] = {
    "pending": lambda x: x.exp(),
    "realized": lambda x: (lambda e: (e.tolist(), e)[1])(x.exp()),
    "a product": lambda x: x.reshape(1, 3) @ x.new_ones(3, 3),
    "of a product": lambda x: (x.reshape(1, 3) @ x.new_ones(3, 3)).exp(),
    "a sum": lambda x: (x * x).sum(),
    "a copy": lambda x: x.clone(),
    "a view of an intermediate": lambda x: (x * 2)[1:],
    "written in place": lambda x: x.new_zeros(3).add_(x),
    "made under no_grad": lambda x: lucid_gpu.no_grad()(lambda: x * 2)(),
    "an inner Function's": lambda x: saving(lucid_gpu).apply(x),
}


@pytest.mark.parametrize("name", INTERMEDIATES)
def test_a_saved_intermediate_refuses_second_derivatives(name: str, device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(INTERMEDIATES[name](x))
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        ctx.saved_tensors
        return g * 2

    function = make(lucid_gpu, forward, backward)
    x = leaf(lucid_gpu, device)
    gradient(function, x)
    assert x.grad.tolist() == [2.0] * 3
    y = function.apply(x * 1)
    y.grad_fn.saved_tensors  # reading them is no differentiation
    (g,) = lucid_gpu.autograd.grad(y.sum(), x, create_graph=True)
    assert g.tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="neither an input nor an output of forward") as caught:
        g.sum().backward()
    for mend in ("Return it from forward", "or recompute it in backward", "@once_differentiable"):
        assert mend in str(caught.value)


CONSTANTS: dict[str, Any] = {
    "a mask": lambda x: x > 1.5,
    "a mask of numbers": lambda x: (x > 1.5).to(x.dtype),
    "a place": lambda x: x.argmax(),
    "random numbers": lambda x: x.new_ones(3) * 2,
    "the input, detached": lambda x: x.detach(),
    "from outside": lambda x: OUTSIDE.to(x.device),
}
OUTSIDE = lucid_gpu.ones(3) * 3


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_has_no_derivative_may_be_saved(name: str, device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(CONSTANTS[name](x), x)
        return x * x

    def backward(ctx: Any, g: Any) -> Any:
        return g * 2 * ctx.saved_tensors[1]

    assert (
        second(lucid_gpu, make(lucid_gpu, forward, backward), leaf(lucid_gpu, device)).tolist()
        == [2.0] * 3
    )


def test_what_was_computed_from_inputs_without_grad_may_be_saved(device: str) -> None:
    def forward(ctx: Any, x: Any, k: Any) -> Any:
        ctx.save_for_backward(k.exp(), x)
        return x * x * k.exp()

    def backward(ctx: Any, g: Any) -> Any:
        e, x = ctx.saved_tensors
        return g * 2 * x * e, None

    k = lucid_gpu.zeros(3, device=device)
    function = make(lucid_gpu, forward, backward)
    assert second(lucid_gpu, function, leaf(lucid_gpu, device), k).tolist() == [2.0] * 3


def test_a_constant_output_may_be_saved_by_the_next_function(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def halve(ctx: Any, x: Any) -> Any:
            half = x * 0.5
            ctx.mark_non_differentiable(half)
            return x * 2, half

        def multiply(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * a * b

        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return g * 2 * a * b, None

        x = leaf(m, d)
        y, half = make(m, halve, lambda ctx, g, _: g * 2).apply(x)
        z = make(m, multiply, backward).apply(y, half)
        (g,) = m.autograd.grad(z.sum(), x, create_graph=True)
        return m.autograd.grad(g.sum(), x)[0]

    gives([4.0, 8.0, 12.0], scenario, device)


@pytest.mark.parametrize("of", ["input", "output", "part of an input"])
def test_saved_views_carry_second_derivatives(of: str, device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * x * x
        if of == "output":
            ctx.save_for_backward(x.t(), y.view(-1))
        else:
            ctx.save_for_backward(x.t())
        return y

    def backward(ctx: Any, g: Any) -> Any:
        x = ctx.saved_tensors[0].t()
        if of == "output":  # y = x ** 3: its gradient is 3 * y / x
            return g * 3 * ctx.saved_tensors[1].view(2, 2) / x
        return g * 3 * x * x

    x = lucid_gpu.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    given = (x * 1)[:, :] if of == "part of an input" else x * 1
    y = make(lucid_gpu, forward, backward).apply(given)
    (g,) = lucid_gpu.autograd.grad(y.sum(), x, create_graph=True)
    (found,) = lucid_gpu.autograd.grad(g.sum(), x)
    assert found.flatten().tolist() == pytest.approx([6.0, 12.0, 18.0, 24.0])


def test_once_differentiable_allows_saved_intermediates_once(device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        e = x.exp()
        ctx.save_for_backward(e)
        return e * 2

    function = make(
        lucid_gpu, forward, once_differentiable(lambda ctx, g: g * 2 * ctx.saved_tensors[0])
    )
    x = leaf(lucid_gpu, device, 0.0)
    (g,) = lucid_gpu.autograd.grad(function.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [2.0]
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        g.sum().backward()


def test_once_differentiable_refuses_a_second_derivative_by_the_cotangent(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        once = m.autograd.function.once_differentiable
        x, weights = leaf(m, d), m.ones(3, device=d, requires_grad=True)
        y = make(m, lambda ctx, x: x * 2, once(lambda ctx, g: g * 2)).apply(x)
        (g,) = m.autograd.grad(y, x, weights, create_graph=True)
        g.sum().backward()

    words = "trying to differentiate twice a function that was marked with @once_differentiable"
    refuses(RuntimeError, words, scenario, device)


def test_once_differentiable_unpacks_nothing_by_itself(device: str) -> None:
    unpacked: list[Any] = []

    def unpack(t: Any) -> Any:
        unpacked.append(t)
        return t

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    backward = once_differentiable(lambda ctx, g: g * 2 * ctx.saved_tensors[0])
    x = leaf(lucid_gpu, device)
    with lucid_gpu.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = make(lucid_gpu, forward, backward).apply(x)
    y.sum().backward(create_graph=True)
    assert len(unpacked) == 1


def test_backward_may_call_another_function(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        inner = make(m, lambda ctx, x: x * 3, lambda ctx, g: g * 3)
        outer = make(m, lambda ctx, x: x * 3, lambda ctx, g: inner.apply(g))
        x, w = leaf(m, d), m.ones(3, device=d, requires_grad=True)
        (g,) = m.autograd.grad(outer.apply(x), x, w, create_graph=True)
        g.sum().backward()
        return [g.detach(), w.grad]

    gives([[3.0] * 3, [3.0] * 3], scenario, device)


# --- errors on the way ----------------------------------------------------------------------------


def test_an_error_in_setup_context_leaves_recording_on(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError):
            make(m, lambda x: x * 2, None, setup).apply(leaf(m, d))
        return [m.is_grad_enabled(), (leaf(m, d) * 2).requires_grad]

    gives([True, True], scenario, device)


def test_backward_may_be_tried_again_after_an_error(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        calls: list[int] = []

        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        def backward(ctx: Any, g: Any) -> Any:
            ctx.saved_tensors
            calls.append(1)
            if len(calls) == 1:
                raise KeyError("mine")
            return g * 2

        x = leaf(m, d)
        y = make(m, forward, backward).apply(x)
        with pytest.raises(KeyError):
            y.sum().backward()
        y.sum().backward()
        return x.grad

    gives([2.0] * 3, scenario, device)
