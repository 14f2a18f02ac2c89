"""LU factors with partial pivoting."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import linalg
from lucid_gpu.ops.arguments import takes_out
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.linalg.matrices import adjoint as _adjoint
from lucid_gpu.ops.linalg.matrices import (
    diagonal_of,
    identity_like,
    lower,
    refuse_zero_pivots,
    require_matrices,
    upper,
)
from lucid_gpu.ops.linalg.quotients import solution, triangle
from lucid_gpu.ops.memory_formats import columns, columns_order
from lucid_gpu.ops.named_results import result_of, results_of
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import cat, owned
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor, from_array


@result_of("linalg_lu_factor")
class LU(NamedTuple):
    """What `lu_factor` returns."""

    LU: Tensor
    pivots: Tensor


@result_of("linalg_lu_factor_ex")
class LUWithInfo(NamedTuple):
    """What `lu_factor_ex` returns."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class PLU(NamedTuple):
    """What `lu` and `lu_unpack` return."""

    P: Tensor
    L: Tensor
    U: Tensor


PLUS = results_of(PLU, "linalg_lu", "lu_unpack")


@op(autocast={"cpu": "float32"})
@columns
def lu_factor(A: Tensor, *, pivot: bool = True) -> LU:
    """Factors ``L``, without its diagonal of ones, and ``U`` of each matrix in one, and pivots.

    Gradient of square matrices: ``P L^-H (tril(L^H g_L, -1) + triu(g_U U^H)) U^-H`` (Giles 2008);
    of others by the square part they begin with.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)

    Raises
    ------
    RuntimeError
        If a pivot is zero, and without pivoting.
    """
    factors, pivots, info = lu_factor_ex(A, pivot=pivot)
    instead = "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
    refuse_zero_pivots(info, "torch.linalg.lu_factor", "U", "lu_solve", instead)
    return LU(factors, pivots)


@op(autocast={"cpu": "float32"})
@columns
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUWithInfo:
    """As `lu_factor`; ``info`` is the first pivot that is zero, or 0."""
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented")
    if check_errors:
        return LUWithInfo(*lu_factor(A), A.new_zeros(tuple(A.shape[:-2]), dtype=dt.int32))
    factors, pivots = _factors(A)
    zero = _diagonal(factors.detach()) == 0
    places = arange(1, pivots.shape[-1] + 1, device=A.device) * zero
    beyond = places.masked_fill(zero.logical_not(), pivots.shape[-1] + 1)
    info = beyond.amin(-1) if pivots.shape[-1] else A.new_zeros(tuple(A.shape[:-2]))
    return LUWithInfo(factors, pivots, (info * zero.any(-1)).to(dt.int32))


batching(lu_factor, lu_factor_ex)(on_value)


def _diagonal(x: Tensor) -> Tensor:
    k = min(x.shape[-2:])
    square = x.narrow(-2, 0, k).narrow(-1, 0, k)
    return diagonal_of(square)


def _factors(A: Tensor) -> tuple[Tensor, Tensor]:
    require_matrices("linalg.lu_factor", A)
    array, places = linalg.eliminated(A.device, A.array)
    pivots = from_array(places, dt.int32, A.device)
    factors: Tensor = record(
        "LinalgLuFactorExBackward0", array, (A,), _factors_vjp, (pivots,), A.dtype,
        keeps_output=True,
    )  # fmt: skip
    return factors, pivots


def _factors_vjp(node: Any, g: Tensor) -> Any:
    pivots, factors = node.saved_values
    m, n = factors.shape[-2:]
    k = min(m, n)
    L, U = lower(factors, -1).narrow(-1, 0, k), upper(factors).narrow(-2, 0, k)
    L = L + identity_like(L, m).narrow(-1, 0, k)
    P = _permutation(pivots, m, factors)
    return (_pulled_back(P, L, U, g.narrow(-1, 0, k), g.narrow(-2, 0, k)),)


def _pulled_back(P: Tensor, L: Tensor, U: Tensor, g_L: Tensor, g_U: Tensor) -> Tensor:
    """The gradient of ``P L U`` by those of ``L`` below its diagonal and of ``U`` above."""
    m, n, k = L.shape[-2], U.shape[-1], L.shape[-1]
    g_L, g_U = lower(g_L, -1), upper(g_U)
    L1, U1 = L.narrow(-2, 0, k), U.narrow(-1, 0, k)
    # what lies below or beside the square part: A2 = L2 U1, and A3 = L1 U3
    inner = lower(_adjoint(L1) @ g_L.narrow(-2, 0, k), -1)
    inner = inner + upper(g_U.narrow(-1, 0, k) @ _adjoint(U1))
    if m > k:
        below = _adjoint(solution(U1, _adjoint(g_L.narrow(-2, k, m - k))))  # g_L2 U1^-H
        inner = inner - upper(_adjoint(L.narrow(-2, k, m - k)) @ g_L.narrow(-2, k, m - k))
    if n > k:
        beside = solution(_adjoint(L1), g_U.narrow(-1, k, n - k))
        inner = inner - lower(g_U.narrow(-1, k, n - k) @ _adjoint(U.narrow(-1, k, n - k)), -1)
    total = _adjoint(solution(U1, _adjoint(solution(_adjoint(L1), inner))))
    if m > k:
        total = cat([total, below], -2)
    if n > k:
        total = cat([total, beside], -1)
    return P @ total


def _permutation(pivots: Tensor, m: int, like: Tensor) -> Tensor:
    """``P`` of ``A = P L U`` from the rows that were exchanged, one after the other."""
    batch = tuple(pivots.shape[:-1])
    order = arange(m, device=like.device).expand((*batch, m))
    places = arange(m, device=like.device)
    for i in range(pivots.shape[-1]):
        other = pivots.narrow(-1, i, 1).long() - 1
        here, there = order.narrow(-1, i, 1), order.gather(-1, other)
        order = here.where(places == other, order)
        order = there.where(places == i, order)
    return (order.unsqueeze(-2) == places.unsqueeze(-1)).to(like.dtype)


@op
@owned
def lu(A: Tensor, *, pivot: bool = True) -> PLU:
    """A permutation, a lower and an upper triangular matrix with ``A = P L U``.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
    """
    if open_levels and innermost((A,)) is not None:
        parts: PLU = PLUS["linalg_lu"](*lu_unpack(*lu_factor_ex(A, pivot=pivot)[:2]))
        return parts
    with no_grad():
        P, L, U = lu_unpack(*lu_factor_ex(A, pivot=pivot)[:2])
    L, U = record(
        "LinalgLuBackward0", (L.array, U.array), (A,), _lu_vjp, (P,), A.dtype, keeps_output=True
    )
    result: PLU = PLUS["linalg_lu"](P, L, U)
    return result


def _lu_vjp(node: Any, g_L: Tensor, g_U: Tensor) -> Any:
    P, L, U = node.saved_values
    return (_pulled_back(P, L, U, g_L, g_U),)


@op
@takes_out
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> PLU:
    """The three matrices of a result of `lu_factor`; those not requested are empty.

    Parameters
    ----------
    LU_data : Tensor, shape (..., m, n)
    LU_pivots : Tensor of int32, shape (..., min(m, n))
    unpack_data, unpack_pivots : bool
        Whether to compute ``L`` and ``U``, and whether to compute ``P``.

    Returns
    -------
    P, L, U
        Of shapes (..., m, m), (..., m, k) and (..., k, n), where ``k = min(m, n)``.

    Raises
    ------
    RuntimeError
        For pivots of another type.
    """
    if unpack_pivots and LU_pivots.dtype is not dt.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype."
            "\nNote: this function is intended to be used with the output produced by "
            f"torch.linalg.lu_factor; got {LU_pivots.dtype.name}"
        )
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    nothing = LU_data.new_empty((0,))
    P, L, U = nothing, nothing, nothing
    if unpack_pivots:
        order = LU_pivots.expand((*LU_data.shape[:-2], LU_pivots.shape[-1]))
        P = _permutation(order, m, LU_data)
    if unpack_data:
        below = LU_data.narrow(-1, 0, k).tril(-1)
        L = lay(below + identity_like(LU_data, m).narrow(-1, 0, k), None)
        U = LU_data.narrow(-2, 0, k).triu()
    result: PLU = PLUS["lu_unpack"](P, L, U)
    return result


@op
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The solution of ``A X = B``, of ``X A = B``, or by ``A^H``, from `lu_factor`'s answer.

    Parameters
    ----------
    LU, pivots : Tensor, shapes (..., n, n) and (..., n)
        What `lu_factor` returned.
    B : Tensor, shape (..., n, k), or (..., k, n) where ``left`` is False
    left : bool
        Whether ``A`` stands on the left of ``X``.
    adjoint : bool
        Whether ``A^H`` is used instead of ``A``.
    """
    P = _permutation(pivots, LU.shape[-1], LU)
    L, U = triangle(LU, False, True), triangle(LU, True)
    A = P @ L @ U
    A = _adjoint(A) if adjoint else A
    X = solution(A, B) if left else solution(A.mT, B.mT).mT
    return lay(X, columns_order(X) if left else None)


FUNCTIONS = (lu_unpack,)
