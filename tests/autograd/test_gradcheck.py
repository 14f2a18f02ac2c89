"""gradcheck finds what is wrong, and nothing else."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function, GradcheckError, gradcheck, gradgradcheck
from tests.oracle import torch_module


def double(*shape: int, device: str = "cpu") -> lucid_gpu.Tensor:
    t = lucid_gpu.rand(*shape, dtype=lucid_gpu.float64, device=device) + 0.5
    return t.detach().requires_grad_()


def scaled(name: str, backward: Callable[..., Any]) -> Any:
    """Twice its input, with a given backward."""

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: lucid_gpu.Tensor) -> lucid_gpu.Tensor:
            ctx.set_materialize_grads(False)
            return x * 2

    Scaled.backward = staticmethod(backward)
    Scaled.__name__ = name
    return Scaled.apply


@pytest.mark.parametrize("fast", [False, True])
def test_right_gradients_pass(fast: bool, device: str) -> None:
    x, y = double(3, 2, device=device), double(2, device=device)
    assert gradcheck(lambda a, b: (a * b.exp(), (a / b).sum()), (x, y), fast_mode=fast)
    assert gradgradcheck(lambda a, b: (a * b.exp(), (a / b).sum()), (x, y), fast_mode=fast)
    assert gradcheck(lambda a: a.sin(), x, fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_a_wrong_factor_is_found(fast: bool) -> None:
    function = scaled("Wrong", lambda ctx, g: None if g is None else g * 2.1)
    with pytest.raises(
        GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"
    ):
        gradcheck(function, double(3), fast_mode=fast)
    assert gradcheck(function, double(3), fast_mode=fast, raise_exception=False) is False
    assert gradcheck(function, double(3), fast_mode=fast, atol=1.0)


def test_the_message_shows_both_jacobians() -> None:
    function = scaled("Wrong", lambda ctx, g: None if g is None else g * 3)
    with pytest.raises(GradcheckError, match=r"numerical:\[\[2[\s\S]*analytical:\[\[3"):
        gradcheck(function, double(2))


def test_a_mismatch_names_output_and_input() -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        return a * 1.5, c * b.detach() + b * 0

    with pytest.raises(GradcheckError, match="output 1 with respect to input 1"):
        gradcheck(function, (double(2), double(2), double(2)))


def test_a_wrong_second_gradient_is_found() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x.detach() ** 2

    assert gradcheck(Cube.apply, double(3))
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradgradcheck(Cube.apply, double(3))


def test_a_backward_that_varies_is_found() -> None:
    turns = itertools.count()

    def backward(ctx: Any, g: Any) -> Any:
        return None if g is None else g * (2 + next(turns) % 2 * 1e-7)

    function = scaled("Varying", backward)
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(function, double(1))
    assert gradcheck(function, double(1), nondet_tol=1e-6)


def test_a_backward_that_cannot_take_undefined_gradients_is_found() -> None:
    function = scaled("Strict", lambda ctx, g: g * 2)
    with pytest.raises(GradcheckError, match="Expected backward function to handle undefined"):
        gradcheck(function, double(2))
    assert gradcheck(function, double(2), check_undefined_grad=False)


def test_gradients_out_of_nothing_are_found() -> None:
    function = scaled("Generous", lambda ctx, g: lucid_gpu.full((2,), 2.0, dtype=lucid_gpu.float64))
    with pytest.raises(GradcheckError, match="Jacobian|not multiplied|undefined or zero"):
        gradcheck(function, double(2))


def test_a_missing_gradient_is_found() -> None:
    def function(x: Any) -> Any:
        return x * x.detach()

    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(function, double(2))


def test_a_hidden_dependence_is_found() -> None:
    with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, double(2))
    assert gradcheck(lambda x: x.detach() * 0, double(2))


def test_complex_inputs_and_outputs_are_checked_by_parts(device: str) -> None:
    z = lucid_gpu.randn(3, dtype=lucid_gpu.complex128, device=device).requires_grad_()
    x = double(3, device=device)
    for fast in (False, True):
        assert gradcheck(lambda a: a * a.exp(), z, fast_mode=fast)
        assert gradcheck(lambda a: a.abs(), z, fast_mode=fast)
        assert gradcheck(lambda a, b: a * b, (z, x), fast_mode=fast)
        assert gradgradcheck(lambda a, b: a * b * a, (z, x), fast_mode=fast)

    def wrong(a: Any) -> Any:
        return a + (a.conj_physical() - a).detach()  # conj(a), with the gradient of a

    with pytest.raises(GradcheckError, match="imaginary part of complex outputs only"):
        gradcheck(wrong, z)


def test_an_input_passed_twice_moves_in_both_places() -> None:
    x = double(2)
    assert gradcheck(lambda a, b: a * b, (x, x))


def test_inputs_that_are_no_tensors_pass_through() -> None:
    assert gradcheck(lambda a, n, flag: a**n if flag else a, (double(2), 3, True))


def test_strided_and_empty_inputs(device: str) -> None:
    x = double(4, 3, device=device).detach().t()[:, ::2].requires_grad_()
    assert gradcheck(lambda a: a.exp(), x)
    assert gradcheck(
        lambda a: a.exp(), lucid_gpu.zeros(0, dtype=lucid_gpu.float64).requires_grad_()
    )


def test_inputs_are_left_alone() -> None:
    x = double(3)
    before = x.tolist()
    gradcheck(lambda a: a.exp(), x)
    assert x.tolist() == before
    assert x.grad is None
    assert x._version == 0


def test_single_precision_is_warned_of() -> None:
    x = lucid_gpu.ones(2, requires_grad=True)
    with pytest.warns(
        UserWarning, match="Input #0 requires gradient and is not a double precision"
    ):
        gradcheck(lambda a: a * 2, x, eps=1e-2, atol=1e-2)


def test_something_must_require_grad() -> None:
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda a: a, lucid_gpu.zeros(2, dtype=lucid_gpu.float64))


def test_overlapping_inputs_are_refused() -> None:
    x = lucid_gpu.ones(1, dtype=lucid_gpu.float64).expand(3).requires_grad_()
    with pytest.raises(RuntimeError, match="0th input has a dimension with stride 0"):
        gradcheck(lambda a: a, x)


def test_errors_of_the_function_pass_unchanged() -> None:
    def function(a: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gradcheck(function, double(2), raise_exception=False)


def test_batched_gradients_are_checked() -> None:
    assert gradcheck(lambda a: a * a.exp(), double(3), check_batched_grad=True)


def test_given_cotangents_are_used() -> None:
    x = double(2, 2)
    assert gradgradcheck(lambda a: a.exp() * a, x, double(2, 2))
    assert gradgradcheck(lambda a: a.exp() * a, x, gen_non_contig_grad_outputs=True)


# --- the same words as PyTorch --------------------------------------------------------------------


def numbers(m: Any, *shape: int) -> Any:
    count = max(1, math.prod(shape))
    return (m.arange(count, dtype=m.float64).reshape(shape) / 7 + 0.3).requires_grad_()


def complex_numbers(m: Any) -> Any:
    return m.tensor([1 + 2j, -0.5j], dtype=m.complex128).requires_grad_()


def custom(m: Any, forward: Any, backward: Any, materialize: bool = False) -> Any:
    class Func(m.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return forward(x)

    Func.backward = staticmethod(backward)
    return Func.apply


def times(factor: float) -> Any:
    return lambda ctx, g: None if g is None else g * factor


def varying(step: float, factor: float) -> Any:
    turns = itertools.count()
    return lambda ctx, g: None if g is None else g * (factor + next(turns) % 3 * step)


def refusing(ctx: Any, g: Any) -> Any:
    if g is None:
        raise RuntimeError("a gradient, please")
    return g * 2


def alternating(odd: Any) -> Any:
    turns = itertools.count()
    return lambda x: odd(x * 2) if next(turns) % 2 else x * 2


def check(function: Any, inputs: Any = numbers, second: bool = False, **options: Any) -> Any:
    """A scenario: ``function(m)`` gives what to check."""

    def run(m: Any) -> Any:
        given = inputs(m, 2) if inputs is numbers else inputs(m)
        checker = m.autograd.gradgradcheck if second else m.autograd.gradcheck
        return checker(function(m), given, **options)

    return run


def wrong_forward(m: Any) -> Any:
    class Func(m.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t * 3

    return Func.apply


FAILS: dict[str, tuple[Any, str]] = {
    "a wrong gradient": (
        check(lambda m: custom(m, lambda x: x * 2, times(3))),
        "Jacobian mismatch for output 0 with respect to input 0",
    ),
    "a wrong gradient, in fast mode": (
        check(lambda m: custom(m, lambda x: x * 2, times(3)), fast_mode=True),
        "The max per-element difference (slow mode) is: 1.0",
    ),
    "a backward that varies": (
        check(lambda m: custom(m, lambda x: x * 2, varying(1e-7, 2))),
        "Backward is not reentrant, i.e., running backward with same input and grad_output "
        "multiple times gives different values",
    ),
    "a backward that varies, in fast mode": (
        check(lambda m: custom(m, lambda x: x * 2, varying(1e-7, 2)), fast_mode=True),
        "Backward is not reentrant",
    ),
    "a backward that varies and is wrong": (
        check(lambda m: custom(m, lambda x: x * 2, varying(0.1, 5))),
        "Backward is not reentrant",
    ),
    "undefined gradients refused": (
        check(lambda m: custom(m, lambda x: x * 2, refusing)),
        "Expected backward function to handle undefined output grads.",
    ),
    "something out of undefined gradients": (
        check(
            lambda m: custom(
                m,
                lambda x: x * 2,
                lambda ctx, g: m.ones(2, dtype=m.float64) if g is None else g * 2,
            )
        ),
        "Expected all input grads to be undefined or zero when all output grads are undefined or "
        "zero.",
    ),
    "not multiplied": (
        check(
            lambda m: custom(
                m, lambda x: x * 2, lambda ctx, g: m.full((1,), 2.0, dtype=m.float64), True
            ),
            lambda m: numbers(m, 1),
        ),
        "backward not multiplied by grad_output",
    ),
    "an unstable shape": (
        check(lambda m: alternating(lambda y: y.reshape(1, 2))),
        "Expected `func` to return outputs with the same shape when inputs are perturbed on index "
        "(0,) by 1e-06, but got: shapes",
    ),
    "an unstable dtype": (
        check(lambda m: alternating(lambda y: y.float())),
        "Expected `func` to return outputs with the same dtype when inputs are perturbed on index "
        "(0,) by 1e-06, but got: dtypes",
    ),
    "a cut graph": (
        check(lambda m: lambda x: x.detach() * 2),
        "Numerical gradient for function expected to be zero",
    ),
    "a small slope of a cut graph": (
        check(lambda m: lambda x: x.detach() * 1e-7),
        "Numerical gradient for function expected to be zero",
    ),
    "a cut graph, in fast mode": (
        check(lambda m: lambda x: x.detach() * 2, fast_mode=True),
        "Numerical gradient for function expected to be zero",
    ),
    "no input to check": (
        check(lambda m: lambda x: x, lambda m: m.ones(2, dtype=m.float64)),
        "gradcheck expects at least one input tensor to require gradient, but none of them have "
        "requires_grad=True.",
    ),
    "an expanded input": (
        check(
            lambda m: lambda x: x,
            lambda m: m.ones(1, dtype=m.float64).expand(3).requires_grad_(),
        ),
        "The 0th input has a dimension with stride 0. gradcheck only supports inputs that are "
        "non-overlapping",
    ),
    "the wrong imaginary part": (
        check(lambda m: lambda z: z + (m.conj_physical(z) - z).detach(), complex_numbers),
        "While considering the imaginary part of complex outputs only, Jacobian mismatch",
    ),
    "the wrong real part": (
        check(lambda m: lambda x: x * (1 + 2j) + x.detach()),
        "While considering the real part of complex outputs only, Jacobian mismatch",
    ),
    "both parts wrong, in fast mode": (
        check(lambda m: lambda z: z * z.detach(), complex_numbers, fast_mode=True),
        "While considering the imaginary part of complex outputs only, Jacobian mismatch",
    ),
    "a wrong second gradient": (
        check(
            lambda m: custom(m, lambda x: x * 2, lambda ctx, g: g and g * g.detach(), True),
            lambda m: numbers(m, 1),
            second=True,
            check_undefined_grad=False,
        ),
        "Jacobian mismatch for output 0 with respect to input 1",
    ),
    "a wrong tangent": (
        check(lambda m: wrong_forward(m), check_forward_ad=True),
        "Jacobian computed with forward mode mismatch for output 0 with respect to input 0",
    ),
    "a wrong tangent, in fast mode": (
        check(lambda m: wrong_forward(m), check_forward_ad=True, fast_mode=True),
        "Jacobian computed with forward mode mismatch for output 0 with respect to input 0",
    ),
    "no mode": (
        check(lambda m: lambda x: x * 2, check_backward_ad=False),
        "Expected at least one of check_forward_ad or check_backward_ad to be True",
    ),
    "batches without backward": (
        check(
            lambda m: lambda x: x * 2,
            check_forward_ad=True,
            check_backward_ad=False,
            check_batched_grad=True,
        ),
        "Setting check_batched_grad=True requires check_backward_ad to be True",
    ),
    "forward batches without forward": (
        check(lambda m: lambda x: x * 2, check_batched_forward_grad=True),
        "Setting check_batched_forward_grad=True requires check_forward_ad to be True",
    ),
    "no second mode": (
        check(lambda m: lambda x: x * 2, second=True, check_rev_over_rev=False),
        "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True",
    ),
    "undefined gradients without a second backward": (
        check(
            lambda m: lambda x: x * 2,
            second=True,
            check_rev_over_rev=False,
            check_fwd_over_rev=True,
        ),
        "Setting check_undefined_grad=True requires check_rev_over_rev to be True",
    ),
    "an error of the function": (
        check(lambda m: lambda x: {}["mine"], raise_exception=False),
        "mine",
    ),
}


@pytest.mark.parametrize("name", FAILS)
def test_what_fails_says_what_pytorch_says(name: str) -> None:
    scenario, words = FAILS[name]
    with pytest.raises(Exception) as found:
        scenario(lucid_gpu)
    assert words in str(found.value)
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as expected:
        scenario(torch)
    assert type(expected.value).__name__ == found.type.__name__
    assert words in str(expected.value)


def test_raise_exception_false_catches_gradcheck_errors_only() -> None:
    for name in ("a wrong gradient", "a backward that varies", "not multiplied", "a cut graph"):
        with pytest.raises(GradcheckError):
            FAILS[name][0](lucid_gpu)
    silent = check(lambda m: custom(m, lambda x: x * 2, times(3)), raise_exception=False)
    assert silent(lucid_gpu) is False
    with pytest.raises(AssertionError, match="same shape"):
        check(lambda m: alternating(lambda y: y.reshape(1, 2)), raise_exception=False)(lucid_gpu)


def test_a_backward_that_fails_on_undefined_gradients_is_a_gradcheck_error() -> None:
    """PyTorch lets the TypeError through, whatever raise_exception says."""
    function = custom(lucid_gpu, lambda x: x * 2, lambda ctx, g: g * 2)
    with pytest.raises(GradcheckError, match="raised TypeError: unsupported operand") as error:
        gradcheck(function, numbers(lucid_gpu, 2))
    assert isinstance(error.value.__cause__, TypeError)
    assert gradcheck(function, numbers(lucid_gpu, 2), check_undefined_grad=False)


def test_the_signatures_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for name in ("gradcheck", "gradgradcheck"):
        mine = inspect.signature(getattr(lucid_gpu.autograd, name)).parameters
        theirs = inspect.signature(getattr(torch.autograd, name)).parameters
        assert list(mine) == list(theirs)
        for parameter, other in zip(mine.values(), theirs.values(), strict=True):
            assert (parameter.kind, parameter.default) == (other.kind, other.default)


def test_parameters_that_the_function_closes_over_are_moved() -> None:
    layer = lucid_gpu.nn.Linear(3, 2).double()
    x = double(4, 3)
    parameters = tuple(layer.parameters())
    assert gradcheck(lambda x, *_: layer(x), (x, *parameters))
    assert gradgradcheck(lambda x, *_: layer(x).tanh(), (x, *parameters), fast_mode=True)
    before = [p.tolist() for p in parameters]
    gradcheck(lambda x, *_: layer(x), (x, *parameters))
    assert [p.tolist() for p in parameters] == before


@pytest.mark.parametrize("fast", [False, True])
def test_forward_mode_gives_every_input_a_tangent(fast: bool) -> None:
    seen = []

    def func(a: Any, b: Any) -> Any:
        seen.append((lucid_gpu.autograd.forward_ad.unpack_dual(b).tangent) is not None)
        return a + b

    pair = [lucid_gpu.ones(2, dtype=lucid_gpu.float64, requires_grad=True) for _ in range(2)]
    rules = {"check_backward_ad": False, "check_undefined_grad": False, "fast_mode": fast}
    assert lucid_gpu.autograd.gradcheck(func, pair, check_forward_ad=True, **rules)
    assert any(seen)


def test_inputs_that_are_no_leaves_keep_their_history() -> None:
    base = double(2, 3)
    view = (base * 1)[:, 1:]
    assert gradcheck(lambda a: a.exp(), view)
    view.sum().backward()
    assert base.grad is not None
    assert base.grad.tolist() == [[0, 1, 1]] * 2


def test_masked_lets_gradients_be_nearly_zero() -> None:
    def backward(ctx: Any, g: Any) -> Any:
        return None if g is None else g * 2 + 1e-9

    function = custom(lucid_gpu, lambda x: x * 2, backward)
    with pytest.raises(GradcheckError, match="not multiplied"):
        gradcheck(function, numbers(lucid_gpu, 2))
    assert gradcheck(function, numbers(lucid_gpu, 2), masked=True)


def test_a_gradient_that_is_the_cotangent_itself_is_checked() -> None:
    assert gradgradcheck(lambda a: a.clone(), double(2, 3))


# --- forward mode ---------------------------------------------------------------------------------

FORWARD: dict[str, tuple[Any, Any]] = {
    "elementwise": (lambda m, x: x.exp() * x, numbers),
    "two outputs": (lambda m, x: (x * x, x.sum(0)), numbers),
    "a product": (lambda m, x: x @ x.T, numbers),
    "extrema": (lambda m, x: x.max(1)[0] + x.median(), numbers),
    "running sums": (lambda m, x: x.cumsum(1), numbers),
    "repeated positions": (lambda m, x: x.take(m.tensor([0, 0, 3])), numbers),
    "a complex function": (lambda m, x: x * x.exp(), complex_numbers),
    "a real function of complex numbers": (lambda m, x: x.abs(), complex_numbers),
    "a complex function of real numbers": (lambda m, x: x * (1 + 2j), numbers),
    "parts of complex numbers": (lambda m, x: x.real * x.imag + x.angle(), complex_numbers),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_is_checked(name: str) -> None:
    function, inputs = FORWARD[name]
    x = numbers(lucid_gpu, 2, 3) if inputs is numbers else inputs(lucid_gpu)
    for options in ({}, {"fast_mode": True}, {"check_backward_ad": False}):
        assert gradcheck(
            lambda t: function(lucid_gpu, t),
            x,
            check_forward_ad=True,
            **options,
        )
    assert gradgradcheck(lambda t: function(lucid_gpu, t), x, check_fwd_over_rev=True)


def test_an_input_without_a_tangent_counts_as_one_with_zeros() -> None:
    """Wrong only where exactly one of three tangents is missing, which no column shows."""

    def function(m: Any) -> Any:
        class Func(m.autograd.Function):  # type: ignore[name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any, z: Any) -> Any:
                ctx.set_materialize_grads(False)
                return x + y + z

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g, g, g

            @staticmethod
            def jvp(ctx: Any, *tangents: Any) -> Any:
                there = [t for t in tangents if t is not None]
                return sum(there) * (3 if len(there) == 2 else 1)

        return Func.apply

    words = "has an undefined tangent value."
    for m in (lucid_gpu, pytest.importorskip("torch")):
        inputs = tuple(numbers(m, 2) for _ in range(3))
        with pytest.raises(RuntimeError) as found:
            m.autograd.gradcheck(function(m), inputs, check_forward_ad=True)
        assert type(found.value).__name__ == "GradcheckError"
        assert words in " ".join(map(str, found.value.args))


# --- sparse tensors -------------------------------------------------------------------------------


def sparse_values(m: Any) -> Any:
    return m.tensor([1.5, 2.0], dtype=m.float64).requires_grad_()


def sparse(m: Any, values: Any) -> Any:
    return m.sparse_coo_tensor(m.tensor([[0, 1], [1, 0]]), values, (2, 2))


def test_sparse_tensors_inside_the_function_are_checked() -> None:
    dense = numbers(lucid_gpu, 2, 3)
    for checker in (gradcheck, gradgradcheck):
        assert checker(
            lambda v, d: sparse(lucid_gpu, v).matmul(d), (sparse_values(lucid_gpu), dense)
        )


def test_sparse_results_are_refused_as_in_pytorch() -> None:
    words = "Sparse output is not supported at gradcheck yet."
    for m in (lucid_gpu, pytest.importorskip("torch")):
        with pytest.raises(ValueError, match=words):
            m.autograd.gradcheck(lambda v, m=m: sparse(m, v), sparse_values(m))


@pytest.mark.parametrize("fast", [False, True])
def test_sparse_inputs_move_where_they_are_listed(fast: bool) -> None:
    listed = sparse(lucid_gpu, sparse_values(lucid_gpu).detach()).requires_grad_()
    repeated = lucid_gpu.sparse_coo_tensor(
        [[0, 0, 1], [1, 1, 0]], lucid_gpu.tensor([1.0, 2.0, 3.0], dtype=lucid_gpu.float64), (2, 2)
    ).requires_grad_()
    dense = lucid_gpu.rand(2, 2, dtype=lucid_gpu.float64, requires_grad=True)
    check = functools.partial(gradcheck, masked=True, fast_mode=fast)
    assert check(lambda s, d: s.coalesce().to_dense() * d, (listed, dense))
    assert check(lambda s, d: s @ d, (listed, dense))
    assert check(lambda s: s.to_dense().exp(), (repeated,))
    wrong = functools.partial(check, lambda s: Doubled.apply(s.to_dense()), (listed,))
    assert not wrong(raise_exception=False)
    with pytest.raises(ValueError, match="Input #0 is sparse: .* masked=True"):
        gradcheck(lambda s: s.to_dense(), (listed,))


class Doubled(Function):
    """Has a wrong gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


# --- batches --------------------------------------------------------------------------------------


def test_batched_gradients_and_tangents_are_checked() -> None:
    for function in (lambda x: x.exp() * x, lambda x: (x @ x.T, x.sum(0)), lambda x: x.cumsum(1)):
        assert gradcheck(
            function,
            numbers(lucid_gpu, 2, 3),
            check_batched_grad=True,
            check_forward_ad=True,
            check_batched_forward_grad=True,
        )


def test_a_backward_that_takes_numbers_out_fails_in_a_batch() -> None:
    words = "While computing batched gradients, got:"
    for m in (lucid_gpu, pytest.importorskip("torch")):

        def backward(ctx: Any, g: Any) -> Any:
            return None if g is None else g * 2 + 0 * g.sum().item()

        function = custom(m, lambda x: x * 2, backward)
        with pytest.raises(RuntimeError, match=words) as error:
            m.autograd.gradcheck(function, numbers(m, 2), check_batched_grad=True)
        assert type(error.value).__name__ == "GradcheckError"


@pytest.mark.parametrize("returned", [lambda x: 3.0, lambda x: (x.sin(), None)])
def test_an_output_that_is_no_tensor_is_refused(returned: Any) -> None:
    x = lucid_gpu.ones(2, dtype=lucid_gpu.float64, requires_grad=True)
    with pytest.raises(ValueError, match="expects fn to return tensors, but output"):
        gradcheck(returned, x)


@pytest.mark.parametrize("fast", [False, True])
def test_forward_mode_asks_nothing_of_outputs_that_require_no_grad(fast: bool) -> None:
    for m in (lucid_gpu,) if fast else (lucid_gpu, torch_module()):  # PyTorch's fast mode crashes
        x = m.ones(2, dtype=m.float64).requires_grad_()
        function = m.autograd.gradcheck
        assert function(lambda x: (x * 2, x.detach() * 3), x, check_forward_ad=True, fast_mode=fast)


def test_inputs_without_elements():
    """NumPy gives them strides of zero, which are no expansion."""
    x = lucid_gpu.zeros(0, 3, 2, dtype=lucid_gpu.float64, requires_grad=True)
    assert lucid_gpu.autograd.gradcheck(lambda t: t * 2, (x.transpose(1, 2),))
    assert lucid_gpu.autograd.gradcheck(lambda t: t * 2, (x[:, :, :0],))


# --- PyTorch's older functions, and sentences of gradients' forms ---------------------------------


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_older_jacobians_are_torchs(kind: str) -> None:
    said = []
    for m in (lucid_gpu, torch_module()):
        module = importlib.import_module(f"{m.__name__}.autograd.gradcheck")
        a = m.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=getattr(m, kind), requires_grad=True)
        b = m.tensor([3.0, -2.0], dtype=getattr(m, kind), requires_grad=True)

        def fn(inputs: Any) -> Any:
            return (inputs[0] * inputs[1] * 2j).imag, inputs[1].abs().sum()

        with pytest.warns(FutureWarning, match="was part of PyTorch's private API"):
            whole = module.get_numerical_jacobian(fn, (a, b), eps=1e-6)
        with pytest.warns(FutureWarning, match="was part of PyTorch's private API"):
            (alone,) = module.get_numerical_jacobian(fn, (a, b), target=b, eps=1e-6)
        found = module._get_numerical_jacobian(lambda *given: fn(given), (a, b), eps=1e-6)
        tables = [*whole, alone, *[t for outputs in found for t in outputs]]
        said.append([np.round(t.numpy(), 4) for t in tables])
        with pytest.raises(ValueError, match="Expected grad_out to be 1.0"):
            module.get_numerical_jacobian(fn, (a, b), grad_out=2.0)
    assert len(said[0]) == 7
    for ours, theirs in zip(*said, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_older_jacobians_by_backward_passes(device: str) -> None:
    from lucid_gpu.autograd.gradcheck import get_analytical_jacobian

    a = lucid_gpu.rand(2, 2, device=device, dtype=lucid_gpu.float64, requires_grad=True)
    jitter = [0.0]

    class Shaky(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            jitter[0] += 0.25
            return g * 2 + jitter[0]

    with pytest.warns(FutureWarning, match="get_analytical_jacobian was part of"):
        (jacobian,), again, sizes, types = get_analytical_jacobian((a, 3), a * 2)
    assert jacobian.tolist() == (2 * lucid_gpu.eye(4)).tolist() and again and sizes and types
    with pytest.warns(FutureWarning):
        assert not get_analytical_jacobian((a,), Shaky.apply(a))[1]
    with warnings.catch_warnings(), pytest.raises(ValueError, match="output to be non-complex"):
        warnings.simplefilter("ignore")
        get_analytical_jacobian((a,), a.to(lucid_gpu.complex128))


@pytest.mark.parametrize("fast", [False, True])
def test_gradients_of_another_layout(fast: bool) -> None:
    class Listed(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.to_sparse()

    x = lucid_gpu.ones(2, dtype=lucid_gpu.float64, requires_grad=True)
    with pytest.raises(GradcheckError, match="grad is incorrect layout"):
        lucid_gpu.autograd.gradcheck(Listed.apply, (x,), fast_mode=fast)

    def by_rows(x: Any) -> Any:
        y = x.clone()
        y.register_hook(lambda g: None if g is None else g.to_dense().to_sparse(1))
        return y.to_dense()

    x = lucid_gpu.ones(2, 2, dtype=lucid_gpu.float64).to_sparse().requires_grad_()
    with pytest.raises(GradcheckError, match="incorrect sparse_dim 1, expected 2"):
        lucid_gpu.autograd.gradcheck(by_rows, (x,), masked=True, fast_mode=fast)
    check = lucid_gpu.autograd.gradcheck
    assert check(lambda x: x.to_dense(), (x,), masked=True, fast_mode=fast)
