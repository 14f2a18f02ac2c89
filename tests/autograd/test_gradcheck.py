"""gradcheck finds what is wrong, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.autograd import Function, GradcheckError, gradcheck, gradgradcheck


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
