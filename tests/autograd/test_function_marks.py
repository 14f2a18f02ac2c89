"""What forward returns and marks: dirty inputs, constants, views, inputs as they are."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

import lucid_gpu
from tests.autograd.functions import leaf, make
from tests.oracle import gives, modules, refuses

FROM_A_FUNCTION = (
    "This view was created inside a custom Function (or because an input was returned as-is) and "
    "the autograd logic to handle view+inplace would override the custom backward associated with "
    "the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix "
    "this by cloning the output of the custom Function."
)
ONE_OF_SEVERAL = (
    "Output 0 of Custom is a view and is being modified inplace. This view is the output of a "
    "function that returns multiple views. Such functions do not allow the output views to be "
    "modified inplace."
)


def times(factor: float) -> Any:
    """A backward."""
    return lambda ctx, g, *others: g * factor


def tripled(m: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    return make(m, forward, times(3))


# --- mark_dirty -----------------------------------------------------------------------------------


def test_a_dirty_input_comes_back_as_the_same_object(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        h = x * 1
        version = h._version
        y = tripled(m).apply(h)
        found = [y is h, h.grad_fn.name(), h._version - version]
        y.sum().backward()
        return [*found, x.grad]

    gives([True, "CustomBackward", 2, [3.0] * 3], scenario, device)


def test_a_dirty_input_may_be_returned_after_a_view_of_it(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x.mul_(2))
            return x.view(-1), x

        x = leaf(m, d)
        view, y = make(m, forward, lambda ctx, g, h: g * 5 + h * 2).apply(x * 1)
        found = [view.is_leaf, view.grad_fn.name(), view]
        (view * 3 + y).sum().backward()
        return [*found, x.grad]

    gives([False, "CustomBackward", [2.0, 4.0, 6.0], [17.0] * 3], scenario, device)


def test_marking_dirty_counts_a_version_though_nothing_was_written(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x

        h = leaf(m, d) * 1
        version = h._version
        return make(m, forward).apply(h)._version - version

    gives(1, scenario, device)


def test_what_was_saved_before_a_dirty_input_was_written_is_refused(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        h = leaf(m, d) * 1
        saving = make(
            m,
            lambda ctx, x: (ctx.save_for_backward(x), x * 2)[1],
            lambda ctx, g: g * ctx.saved_tensors[0],
        )
        z = saving.apply(h)
        tripled(m).apply(h)
        z.sum().backward()

    refuses(RuntimeError, "modified by an inplace operation", scenario, device)
    refuses(RuntimeError, "is at version 2; expected version 0 instead", scenario, device)


def test_a_dirty_input_that_needed_no_gradient_now_does(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(y)

        x, y = m.ones(3, device=d), leaf(m, d)
        z = make(m, forward, lambda ctx, g: (None, g * 5)).apply(x, y)
        z.sum().backward()
        return [z is x, x.requires_grad, y.grad]

    gives([True, True, [5.0] * 3], scenario, device)


def test_a_dirty_leaf_is_refused(device: str) -> None:
    words = "a leaf Variable that requires grad has been used in an in-place operation"
    refuses(RuntimeError, words, lambda m, d: tripled(m).apply(leaf(m, d)), device)


def test_a_dirty_view_of_a_leaf_is_refused(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        tripled(m).apply(x[1:])

    words = "a view of a leaf Variable that requires grad is being used in an in-place operation"
    refuses(RuntimeError, words, scenario, device)


def test_without_recording_a_dirty_leaf_is_written(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        with m.no_grad():
            y = tripled(m).apply(x)
        return [y is x, x.detach(), x.is_leaf, x.requires_grad, y.requires_grad]

    gives([False, [3.0, 6.0, 9.0], True, True, False], scenario, device)


def test_a_dirty_tensor_that_is_not_returned_is_refused(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x.add_(1))
            return x * 2

        make(m, forward).apply(leaf(m, d) * 1)

    def not_even_an_input(m: Any, d: str) -> Any:
        k = m.zeros(3, device=d)

        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(k)
            return x * 2

        make(m, forward).apply(leaf(m, d))

    words = "Some elements marked as dirty during the forward method were not returned as output."
    refuses(RuntimeError, words, scenario, device)
    refuses(RuntimeError, words, not_even_an_input, device)


def test_a_dirty_tensor_that_is_no_input_warns(device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        ctx.mark_dirty(y)
        return y

    for m, d in modules(device):
        x = leaf(m, d)
        with pytest.warns(UserWarning, match="received a tensor that was not an input"):
            y = make(m, forward, times(2)).apply(x)
        y.sum().backward()
        assert x.grad.tolist() == [2.0] * 3


def test_two_dirty_inputs_may_be_returned_in_any_order(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.mark_dirty(x.mul_(3), y.mul_(2))
            return y, x

        x, y = leaf(m, d), leaf(m, d, 1.0, 1.0, 1.0)
        a, b = x * 1, y * 1
        p, q = make(m, forward, lambda ctx, g, h: (h * 3, g * 2)).apply(a, b)
        (p * q).sum().backward()
        return [p is b, q is a, x.grad, y.grad]

    gives([True, True, [6.0] * 3, [6.0, 12.0, 18.0]], scenario, device)


def test_an_in_place_function_on_a_view_rebases_the_history_of_the_base(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        base = x * 1
        view, other = base[1:], base[:2]
        y = tripled(m).apply(view)
        found = [y is view, base.grad_fn.name().rpartition(":")[2], base.detach(), base._version]
        (base.sum() * 10 + view.sum() * 100 + other.sum() * 1000).backward()
        return [*found, x.grad]

    expected = [True, "CopySlices", [1.0, 6.0, 9.0], 2, [1010.0, 3330.0, 330.0]]
    gives(expected, scenario, device)


def test_an_in_place_function_on_a_view_makes_the_base_require_grad(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.mark_dirty(x.mul_(y))
            return x

        base, y = m.ones(4, device=d), leaf(m, d)
        view = base[1:]
        make(m, forward, lambda ctx, g: (None, g)).apply(view, y)
        (base * m.tensor([1.0, 2.0, 3.0, 4.0], device=d)).sum().backward()
        return [base.requires_grad, y.grad]

    gives([True, [2.0, 3.0, 4.0]], scenario, device)


def test_a_function_of_several_outputs_must_not_modify_a_view(device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x.mul_(3))
        return x, x * 2

    def on_a_view(m: Any, d: str) -> Any:
        base = leaf(m, d) * 1
        make(m, forward).apply(base[1:])

    def on_a_tensor(m: Any, d: str) -> Any:
        x = leaf(m, d)
        base = x * 1
        y, z = make(m, forward, lambda ctx, g, h: g * 3 + h * 6).apply(base)
        (y.sum() + z.sum()).backward()
        return [y is base, x.grad]

    words = (
        "If your Function modifies inplace an input that is a view of another Tensor, your "
        "Function cannot return more than one Tensor."
    )
    refuses(RuntimeError, words, on_a_view, device)
    gives([True, [9.0] * 3], on_a_tensor, device)


def test_hooks_keep_to_the_value_they_were_set_on(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []
        h = leaf(m, d) * 1
        h.register_hook(lambda g: seen.append(["before", g.tolist()]))
        h.retain_grad()
        y = tripled(m).apply(h)
        y.register_hook(lambda g: seen.append(["after", g.tolist()]))
        y.sum().backward()
        return [seen, h.grad]

    gives([[["after", [1.0] * 3], ["before", [3.0] * 3]], [1.0] * 3], scenario, device)


def test_marks_take_tensors(device: str) -> None:
    def dirty(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(3)
        return x * 2

    def constant(ctx: Any, x: Any) -> Any:
        ctx.mark_non_differentiable(3)
        return x * 2

    def materialize(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(3)
        return x * 2

    words = "mark_dirty can only accept variables, but argument"
    refuses(RuntimeError, words, lambda m, d: make(m, dirty).apply(leaf(m, d)), device)
    words = "mark_non_differentiable only accepts variable arguments, but got"
    refuses(RuntimeError, words, lambda m, d: make(m, constant).apply(leaf(m, d)), device)
    words = "set_materialize_grads received an invalid combination of arguments"
    refuses(TypeError, words, lambda m, d: make(m, materialize).apply(leaf(m, d)), device)


# --- mark_non_differentiable ----------------------------------------------------------------------


def test_constant_outputs_have_no_gradient_and_backward_gets_one_for_each(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            constant, place = x * 3, x.argmax()
            ctx.mark_non_differentiable(constant, place)
            return x * 2, constant, place

        def backward(ctx: Any, g: Any, *others: Any) -> Any:
            seen.extend([o.tolist() for o in others])
            return g * 2

        x = leaf(m, d)
        y, constant, place = make(m, forward, backward).apply(x)
        y.sum().backward()
        return [constant.requires_grad, constant.is_leaf, place.requires_grad, seen, x.grad]

    gives([False, True, False, [[0.0] * 3, 0], [2.0] * 3], scenario, device)


def test_whole_number_outputs_are_constant_without_being_marked(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        y, place = make(m, lambda ctx, x: (x * 2, x.argmax()), times(2)).apply(x)
        alone = make(m, lambda ctx, x: x.argmax()).apply(x)
        y.sum().backward()
        return [place.requires_grad, alone.requires_grad, x.grad]

    gives([False, False, [2.0] * 3], scenario, device)


def test_a_constant_input_that_is_returned_is_an_alias(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any, k: Any) -> Any:
            ctx.mark_non_differentiable(k)
            return x * 2, k

        def forward_of_one(ctx: Any, x: Any) -> Any:
            ctx.mark_non_differentiable(x)
            return x, x * 2

        k, h = m.ones(3, device=d), leaf(m, d) * 1
        same = make(m, forward).apply(leaf(m, d), k)[1]
        other = make(m, forward_of_one).apply(h)[0]
        return [same is k, same.requires_grad, other is h, other.requires_grad, h.requires_grad]

    gives([False, False, False, False, True], scenario, device)


def test_a_dirty_input_may_be_constant(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any, k: Any) -> Any:
            ctx.mark_dirty(k.mul_(3))
            ctx.mark_non_differentiable(k)
            return x * 2, k

        k = m.ones(3, device=d)
        same = make(m, forward).apply(leaf(m, d), k)[1]
        return [same is k, same.requires_grad, k]

    gives([True, False, [3.0] * 3], scenario, device)


# --- set_materialize_grads ------------------------------------------------------------------------


@pytest.mark.parametrize("materialize", [True, False])
def test_undefined_gradients_arrive_as_zeros_or_none(materialize: bool, device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 1, x * 2, "word"

        def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            seen.extend([None if a is None else a.tolist(), b.tolist(), c])
            return b * 2

        make(m, forward, backward).apply(leaf(m, d))[1].sum().backward()
        return seen

    gives([[0.0] * 3 if materialize else None, [1.0] * 3, None], scenario, device)


def test_a_gradient_of_none_stays_undefined_further_up(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2

        def backward(ctx: Any, g: Any) -> Any:
            seen.append(g)

        x = leaf(m, d)
        h = make(m, forward, backward).apply(x)
        make(m, lambda ctx, x: x * 2, lambda ctx, g: None).apply(h).sum().backward()
        return [x.grad, seen]

    gives([None, [None]], scenario, device)


# --- outputs --------------------------------------------------------------------------------------


def test_what_may_be_returned(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        one = make(m, lambda ctx, x: (x * 2,)).apply(x)
        return [
            isinstance(one, tuple),
            one[0].grad_fn.name(),
            make(m, lambda ctx, x: (x * 2, None, 7, "s")).apply(x)[1:],
        ]

    gives([True, "CustomBackward", [None, 7, "s"]], scenario, device)


def test_an_input_returned_twice_is_two_aliases(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        a, b = make(m, lambda ctx, x: (x, x), lambda ctx, g, h: g * 2 + h * 3).apply(x)
        (a * 10 + b).sum().backward()
        return [a is b, a is x, x.grad]

    gives([False, False, [23.0] * 3], scenario, device)


def test_a_tensor_returned_twice_has_its_gradient_at_the_last_place(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            return y, y

        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.extend([a.tolist(), b.tolist()])
            return (a + b) * 2

        x = leaf(m, d)
        a, b = make(m, forward, backward).apply(x)
        (a.sum() * 10 + b.sum()).backward()
        return [a is b, a.output_nr, seen, x.grad]

    gives([True, 1, [[0.0] * 3, [11.0] * 3], [22.0] * 3], scenario, device)


def test_hooks_on_an_input_returned_as_it_is_see_its_own_uses_only(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, d)
        h = x * 2
        y = make(m, lambda ctx, x: x, times(5)).apply(h)
        h.register_hook(lambda g: seen.append(["input", g.tolist()]))
        y.register_hook(lambda g: seen.append(["output", g.tolist()]))
        (y.sum() + h.sum() * 10).backward()
        return [y is h, y._is_view(), seen, x.grad]

    seen = [["output", [1.0] * 3], ["input", [15.0] * 3]]
    gives([False, True, seen, [30.0] * 3], scenario, device)


def test_an_input_returned_as_it_is_shares_memory_and_version(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = m.ones(3, device=d)
        y = make(m, lambda ctx, x: x).apply(x)
        y.add_(1)
        return [y is x, x, x._version]

    gives([False, [2.0] * 3, 1], scenario, device)


def test_history_made_in_forward_is_cut(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            with m.enable_grad():
                return x * 3

        x = leaf(m, d)
        y = make(m, forward, times(7)).apply(x)
        y.sum().backward()
        return [y.grad_fn.name(), x.grad]

    gives(["CustomBackward", [7.0] * 3], scenario, device)


# --- views out of a Function ----------------------------------------------------------------------


def identity(x: Any) -> Any:
    return x


def part(x: Any) -> Any:
    return x[1:]


def part_of_an_intermediate(x: Any) -> Any:
    return (x * 3)[1:]


@pytest.mark.parametrize(
    "made", [identity, part, part_of_an_intermediate], ids=lambda f: f.__name__
)
def test_a_view_out_of_a_function_is_not_written(made: Any, device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        make(m, lambda ctx, x: made(x)).apply(leaf(m, d) * 2).mul_(2)

    words = f"Output 0 of Custom is a view and is being modified inplace. {FROM_A_FUNCTION}"
    refuses(RuntimeError, words, scenario, device)


@pytest.mark.parametrize("made", [identity, part], ids=lambda f: f.__name__)
def test_a_view_out_of_a_function_has_no_history_once_its_base_was_written(
    made: Any, device: str
) -> None:
    def scenario(m: Any, d: str) -> Any:
        h = leaf(m, d) * 2
        y = make(m, lambda ctx, x: made(x), times(1)).apply(h)
        h.mul_(2)
        y.sum().backward()

    words = (
        "Output 0 of Custom is a view and its base or another view of its base has been modified"
    )
    refuses(RuntimeError, words, scenario, device)


@pytest.mark.parametrize("made", [identity, part], ids=lambda f: f.__name__)
def test_views_that_come_out_together_are_not_written(made: Any, device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        make(m, lambda ctx, x: (made(x), x * 3)).apply(leaf(m, d) * 2)[0].mul_(2)

    refuses(RuntimeError, ONE_OF_SEVERAL, scenario, device)


def test_views_out_of_a_function_are_written_where_nothing_is_recorded(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        h = leaf(m, d) * 2
        y = make(m, lambda ctx, x: x[1:]).apply(h)
        with m.no_grad():
            y.mul_(2)
        return h.detach()

    gives([2.0, 8.0, 12.0], scenario, device)


def test_outputs_that_are_no_views_may_be_written(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        y, z = make(m, lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3).apply(x)
        y.mul_(10)
        (y.sum() + z.sum()).backward()
        return x.grad

    gives([23.0] * 3, scenario, device)


def test_a_view_of_an_input_goes_backward_through_the_function(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = leaf(m, d)
        y = make(m, lambda ctx, x: x.view(3, 1), lambda ctx, g: g.view(3) * 7).apply(x * 2)
        y.sum().backward()
        return [y.grad_fn.name(), list(y.shape), x.grad]

    gives(["CustomBackward", [3, 1], [14.0] * 3], scenario, device)


def test_a_dirty_view_comes_out_alone_also_where_nobody_else_holds_its_base(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x, x + 1

        make(m, forward).apply(leaf(m, d).clone()[:])

    refuses(RuntimeError, "your Function cannot return more than one Tensor", scenario, device)


def test_jvp_must_write_the_tangent_of_what_forward_wrote(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        class Doubled(m.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.mark_dirty(x)
                return x.mul_(2)

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return t

        ad = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        with ad.dual_level():
            Doubled.apply(ad.make_dual(m.ones(2, device=d), m.ones(2, device=d)))

    refuses(RuntimeError, "must modify the corresponding gradient inplace", scenario, device)


def test_gradients_of_outputs_without_one_need_not_be_made(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen = []

        def forward(ctx: Any, x: Any) -> Any:
            other = x.clone()
            ctx.mark_non_differentiable(other)
            ctx._materialize_non_diff_grads = False
            return x.clone(), other

        def backward(ctx: Any, g: Any, h: Any) -> Any:
            seen.append(h is None)
            return g

        make(m, forward, backward).apply(leaf(m, d))[0].sum().backward()
        return seen

    gives([True], scenario, device)


def test_nothing_is_warned_of(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = leaf(lucid_gpu, device)
        tripled(lucid_gpu).apply(x * 1).sum().backward()
