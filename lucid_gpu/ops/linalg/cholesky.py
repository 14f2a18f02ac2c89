"""Cholesky factors of positive-definite matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu.devices import linalg
from lucid_gpu.ops.arguments import takes_out
from lucid_gpu.ops.linalg.matrices import (
    adjoint,
    complain,
    diagonal_of,
    info_of,
    lower,
    require_square,
    with_diagonal,
)
from lucid_gpu.ops.linalg.quotients import Triangle, by_triangle
from lucid_gpu.ops.memory_formats import columns, columns_order
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import leads_back, record
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor, from_array

NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite (the "
    "leading minor of order {} is not positive-definite)."
)


@result_of("linalg_cholesky_ex")
class Factor(NamedTuple):
    """What `cholesky_ex` returns."""

    L: Tensor
    info: Tensor


@op(autocast={"cpu": "float32"})
@takes_out
@columns
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The lower triangular ``L`` with ``A = L L^H``; with ``upper`` its adjoint.

    Gradient after Murray, Differentiation of the Cholesky decomposition (2016), (8):
    ``L^-H X L^-1``, where ``X`` is half of the lower triangle of ``L^H g`` and its mirror image.
    It is Hermitian but for the imaginary part of that triangle's diagonal, as in PyTorch.

    Parameters
    ----------
    input : Tensor, shape (..., n, n)
        Hermitian and positive-definite; only the triangle that the factor fills is read.

    Raises
    ------
    LinAlgError
        If a matrix is not positive-definite.
    RuntimeError
        For anything but square matrices of floating point numbers.
    """
    return _factor_alone(input, upper, "linalg.cholesky")


@op(autocast={"cpu": "float32"})
@columns
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Factor:
    """As `cholesky`, but ``info`` is the order of the minor that is not positive-definite.

    The factor of such a matrix is unfinished: the columns before that order are a factor's, the
    number on the diagonal there is the one whose root was not taken, the rest the matrix's own.

    RuntimeError for anything but square matrices of floating point numbers.
    """
    return _factor(input, upper, "linalg.cholesky_ex", check_errors)


@op
def _factor(A: Tensor, upper: bool, name: str, check: bool) -> Factor:
    require_square(name, A)
    L, numbers = _lower_factor(A, upper)
    if check:
        complain(name, numbers, A.shape[:-2], NOT_POSITIVE)
    return Factor(adjoint(L) if upper else L, info_of(numbers, A))


@op
def _factor_alone(A: Tensor, upper: bool, name: str) -> Tensor:
    require_square(name, A)
    L, numbers = _lower_factor(A, upper)
    complain(name, numbers, A._expr.shape[:-2], NOT_POSITIVE)
    return adjoint(L) if upper else L


def _lower_factor(A: Tensor, by_upper: bool) -> tuple[Tensor, list[int] | None]:
    """The factor by one of the triangles of ``A``; its gradient is Hermitian by either."""
    matrices = linalg.adjoint(A.array) if by_upper else A.array
    array, numbers = linalg.each("cholesky", A.device, linalg.unfinished_factor, matrices)
    result = record(
        "LinalgCholeskyExBackward0", array, (A,), _cholesky_vjp, dtype=A.dtype, keeps_output=True
    )
    return leads_back(result, columns_order(A)), numbers


def _cholesky_vjp(node: Any, g: Tensor) -> Any:
    (L,) = node.saved_values
    if not (state.grad or open_levels):
        array = linalg.cholesky_gradient(L.device, L.array, g.array)
        return (from_array(array, L.dtype, L.device),)
    inner = lower(adjoint(L) @ g)
    half = with_diagonal(inner + adjoint(inner), diagonal_of(inner)) * 0.5
    for _ in range(2):  # from the left, and by the adjoint from the right
        half = adjoint(by_triangle(L, half, Triangle(upper=False), turned=True))
    return (half,)


batching(_factor, _factor_alone)(on_value)


METHODS = (cholesky,)
FUNCTIONS = METHODS
