"""The forms of a Function: declaring methods, binding arguments, the names of ctx."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from tests.autograd.functions import gradient, leaf, make
from tests.oracle import gives, modules, refuses

# --- who makes ctx --------------------------------------------------------------------------------


def test_the_names_of_ctx(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        y = make(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(leaf(m, d))
        ctx = y.grad_fn
        return [
            type(ctx).__name__,
            ctx.name(),
            isinstance(ctx, m.autograd.function.FunctionCtx),
            isinstance(ctx, m.autograd.graph.Node),
            ctx.metadata,
            ctx.requires_grad,
            len(ctx.next_functions),
            ctx.next_functions[0][1],
            repr(y).rpartition("grad_fn")[2],
        ]

    expected = [
        "CustomBackward",
        "CustomBackward",
        True,
        True,
        {},
        True,
        1,
        0,
        "=<CustomBackward>)",
    ]
    gives(expected, scenario, device)


def test_backward_may_be_called_through_the_node(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        y = make(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(leaf(m, d))
        return y.grad_fn.apply(m.ones(3, device=d))

    gives([2.0, 2.0, 2.0], scenario, device)


def test_hooks_of_ctx_see_its_gradients(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []
        y = make(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(leaf(m, d))
        y.grad_fn.register_hook(lambda ins, outs: seen.append([ins[0].tolist(), outs[0].tolist()]))
        y.grad_fn.register_prehook(lambda outs: seen.append(outs[0].tolist()))
        y.sum().backward()
        return seen

    gives([[1.0] * 3, [[2.0] * 3, [1.0] * 3]], scenario, device)


# --- forms ----------------------------------------------------------------------------------------


def test_classmethods_are_allowed(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        class Together(m.autograd.Function):
            factor = 3

            @classmethod
            def forward(cls, ctx: Any, x: Any) -> Any:
                return x * cls.factor

            @classmethod
            def backward(cls, ctx: Any, g: Any) -> Any:
                return g * cls.factor

        class Apart(m.autograd.Function):
            factor = 3

            @classmethod
            def forward(cls, x: Any, n: int = 2) -> Any:
                return x * cls.factor * n

            @classmethod
            def setup_context(cls, ctx: Any, inputs: Any, output: Any) -> None:
                ctx.n = inputs[1]

            @classmethod
            def backward(cls, ctx: Any, g: Any) -> Any:
                return g * cls.factor * ctx.n, None

        return [gradient(Together, leaf(m, d)), gradient(Apart, leaf(m, d))]

    gives([[3.0] * 3, [6.0] * 3], scenario, device)


def test_methods_without_staticmethod(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        class Apart(m.autograd.Function):
            def forward(x: Any, n: int = 4) -> Any:
                return x * n

            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.n = inputs[1]

            def backward(ctx: Any, g: Any) -> Any:
                return g * ctx.n, None

        return gradient(Apart, leaf(m, d))

    gives([4.0] * 3, scenario, device)


def test_a_subclass_has_nodes_of_its_own(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        base = make(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2)
        derived = type("Derived", (base,), {"backward": staticmethod(lambda ctx, g: g * 5)})
        x = leaf(m, d)
        names = [f.apply(x).grad_fn.name() for f in (base, derived, base)]
        return [names, gradient(derived, x)]

    names = ["CustomBackward", "DerivedBackward", "CustomBackward"]
    gives([names, [5.0] * 3], scenario, device)


def test_setup_context_runs_without_recording_and_sees_the_output_itself(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            seen.extend([m.is_grad_enabled(), output.requires_grad, (inputs[0] * 2).requires_grad])
            ctx.save_for_backward(output)
            ctx.output_of_forward = output

        y = make(m, lambda x: x * 2, lambda ctx, g: g * 2, setup).apply(leaf(m, d))
        return [*seen, y.grad_fn.output_of_forward is y, y.grad_fn.saved_tensors[0] is y]

    gives([False, False, False, True, False], scenario, device)


def test_both_names_of_backward_raise_when_it_runs(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        function = make(
            m, lambda ctx, x: x * 2, lambda ctx, g: g, vjp=staticmethod(lambda ctx, g: g)
        )
        y = function.apply(leaf(m, d))
        assert y.requires_grad
        y.sum().backward()

    refuses(RuntimeError, "Implementing both 'backward' and 'vjp'", scenario, device)


def test_neither_name_of_backward_raises_when_it_runs(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        y = make(m, lambda ctx, x: x * 2).apply(leaf(m, d))
        assert y.requires_grad
        y.sum().backward()

    words = "You must implement either the backward or vjp method"
    refuses(NotImplementedError, words, scenario, device)


def test_no_forward_raises(device: str) -> None:
    words = "You must implement the forward function for custom autograd.Function."
    refuses(NotImplementedError, words, lambda m, d: make(m, None).apply(leaf(m, d)), device)
    refuses(
        NotImplementedError,
        words,
        lambda m, d: make(m, None, None, lambda ctx, i, o: None).apply(leaf(m, d)),
        device,
    )


def test_instances_warn_and_are_not_called(device: str) -> None:
    for m, d in modules(device):
        function = make(m, lambda ctx, x: x * 2)
        with pytest.warns(DeprecationWarning, match="should not be instantiated"):
            instance = function()
        with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward"):
            instance(leaf(m, d))
    with pytest.warns(DeprecationWarning), pytest.raises(RuntimeError, match=r"Custom\.apply"):
        make(lucid_gpu, lambda ctx, x: x)()(leaf(lucid_gpu, device))


def test_the_older_base_class_runs(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        class Doubled(m.autograd.function.InplaceFunction):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        return gradient(Doubled, leaf(m, d))

    gives([2.0] * 3, scenario, device)


# --- arguments ------------------------------------------------------------------------------------


def test_defaults_are_filled_into_the_inputs_of_setup_context(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            seen.append([len(inputs), inputs[1], inputs[2]])
            ctx.n = inputs[1]

        function = make(m, lambda x, n=2, k=5: x * n, lambda ctx, g: (g * ctx.n, None, None), setup)
        return [gradient(function, leaf(m, d)), gradient(function, leaf(m, d), k=1), seen]

    gives([[2.0] * 3, [2.0] * 3, [[3, 2, 5], [3, 2, 1]]], scenario, device)


def test_gradients_of_defaults_may_be_left_off(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        short = make(m, lambda ctx, x, n=2: x * n, lambda ctx, g: g * 2)
        full = make(m, lambda ctx, x, n=2: x * n, lambda ctx, g: (g * 2, None))
        return [gradient(short, leaf(m, d)), gradient(full, leaf(m, d))]

    gives([[2.0] * 3, [2.0] * 3], scenario, device)


def test_needs_input_grad_covers_defaults(device: str) -> None:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any, bias: Any = None, n: int = 2) -> Any:
        seen.append(ctx.needs_input_grad)
        return x * n if bias is None else x * n + bias

    function = make(lucid_gpu, forward)
    x = leaf(lucid_gpu, device)
    function.apply(x)
    function.apply(x.detach(), x)
    assert seen == [(True, False, False), (False, True, False)]


def test_keywords_are_bound_in_both_forms(device: str) -> None:
    def forward(ctx: Any, x: Any, y: Any, scale: float = 1.0) -> Any:
        ctx.scale = scale
        ctx.save_for_backward(x, y)
        return x * y * scale

    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y * ctx.scale, g * x * ctx.scale, None

    x, y = leaf(lucid_gpu, device), leaf(lucid_gpu, device, 4.0, 5.0, 6.0)
    gradient(make(lucid_gpu, forward, backward), y=y, x=x, scale=10.0)
    assert (x.grad.tolist(), y.grad.tolist()) == ([40.0, 50.0, 60.0], [10.0, 20.0, 30.0])


def gradient_by_keyword_only(device: str, k: Any) -> Any:
    def forward(ctx: Any, x: Any, *, k: Any = 2) -> Any:
        ctx.k = k
        return x * k

    return gradient(
        make(lucid_gpu, forward, lambda ctx, g: g * ctx.k), leaf(lucid_gpu, device), k=k
    )


def test_keyword_only_arguments_reach_forward_and_have_no_gradient(device: str) -> None:
    assert gradient_by_keyword_only(device, 3).tolist() == [3.0] * 3
    constant = lucid_gpu.full((3,), 4.0, device=device)
    assert gradient_by_keyword_only(device, constant).tolist() == [4.0] * 3
    with pytest.raises(TypeError, match="requires grad for k, which forward takes by keyword only"):
        gradient_by_keyword_only(device, leaf(lucid_gpu, device))


def test_a_call_that_does_not_fit_raises_as_a_call_of_forward(device: str) -> None:
    def with_missing(m: Any, d: str) -> Any:
        make(m, lambda ctx, x, n: x * n).apply(leaf(m, d))

    def with_extra(m: Any, d: str) -> Any:
        make(m, lambda ctx, x: x).apply(leaf(m, d), 2)

    refuses(TypeError, "missing 1 required positional argument: 'n'", with_missing, device)
    refuses(TypeError, "takes 2 positional arguments but 3 were given", with_extra, device)


def test_variadic_forwards(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            seen.append(len(inputs))

        apart = make(m, lambda *xs: xs[0] * xs[1], lambda ctx, g: (g, g), setup)
        together = make(m, lambda ctx, x, n=2, *xs: x * n, lambda ctx, g: g * 7)
        x = leaf(m, d)
        return [gradient(apart, x, x * 2), gradient(together, leaf(m, d)), seen]

    gives([[3.0] * 3, [7.0] * 3, [2]], scenario, device)


def test_needs_input_grad_is_one_bool_an_argument(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, *args: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return args[0] * 2

        def backward(ctx: Any, g: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return g, None, None, None

        function = make(m, forward, backward)
        whole = m.ones(3, dtype=m.int64, device=d)
        function.apply(leaf(m, d), 3, m.ones(3, device=d), whole).sum().backward()
        function.apply((leaf(m, d),)[0].detach(), leaf(m, d))
        with m.no_grad():
            function.apply(leaf(m, d), 3)
        return seen

    first = [True, False, False, False]
    gives([first, first, [False, True], [True, False]], scenario, device)


# --- switches of the class ------------------------------------------------------------------------


def test_boxed_grads_call_hands_backward_a_list(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def backward(ctx: Any, grads: Any) -> Any:
            seen.append(type(grads).__name__)
            first, second = grads.pop(0), grads.pop(0)
            return first * 2 + second

        function = make(m, lambda ctx, x: (x * 2, x * 1), backward, boxed_grads_call=True)
        x = leaf(m, d)
        a, b = function.apply(x)
        (a + b).sum().backward()
        return [x.grad, seen]

    gives([[3.0] * 3, ["list"]], scenario, device)


def test_clear_saved_tensors_on_access_lets_them_be_read_once(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            ctx.saved_tensors
            return g * x

        function = make(m, forward, backward, clear_saved_tensors_on_access=True)
        gradient(function, leaf(m, d))

    words = "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True"
    refuses(RuntimeError, words, scenario, device)


# --- older names ----------------------------------------------------------------------------------


def test_older_names_show_what_was_marked_while_forward_runs(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            seen.append([ctx.to_save, ctx.dirty_tensors, ctx.non_differentiable, ctx.saved_tensors])
            ctx.save_for_backward(x)
            y = x * 2
            ctx.mark_non_differentiable(y)
            seen.append([len(ctx.to_save), ctx.to_save[0] is x, ctx.non_differentiable[0] is y])
            return y, x * 3

        ctx = make(m, forward).apply(leaf(m, d))[1].grad_fn
        return [*seen, ctx.to_save, ctx.dirty_tensors, ctx.non_differentiable]

    expected = [[None, None, None, []], [1, True, True], None, None, None]
    gives(expected, scenario, device)


def test_older_names_may_be_set(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.to_save = (x,)
            constant = x * 2
            ctx.non_differentiable = (constant,)
            return constant, x * 3

        def write(ctx: Any, x: Any) -> Any:
            ctx.dirty_tensors = (x.mul_(2),)
            return x

        x = leaf(m, d)
        constant, y = make(m, forward, lambda ctx, _, g: g * ctx.saved_tensors[0]).apply(x)
        y.sum().backward()
        h = leaf(m, d) * 1
        return [constant.requires_grad, x.grad, make(m, write).apply(h) is h]

    gives([False, [1.0, 2.0, 3.0], True], scenario, device)


def test_to_save_must_be_a_tuple(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.to_save = [x]
            return x * 2

        make(m, forward).apply(leaf(m, d))

    refuses(RuntimeError, "to_save attribute is expected to be a tuple", scenario, device)


def test_saved_variables_warns(device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    for m, d in modules(device):
        x = leaf(m, d)
        node = make(m, forward).apply(x).grad_fn
        with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated; use 'saved_"):
            assert node.saved_variables[0] is x


def test_mark_shared_storage_warns_and_does_nothing(device: str) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_shared_storage((x, x))
        return x * 2

    for m, d in modules(device):
        with pytest.warns(FutureWarning, match="`mark_shared_storage` is deprecated"):
            make(m, forward).apply(leaf(m, d))


def test_defining_and_applying_functions_warns_of_nothing(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Quiet(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                ctx.saved_tensors
                return g * 2

        gradient(Quiet, leaf(lucid_gpu, device))
