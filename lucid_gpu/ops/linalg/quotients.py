"""Solutions of linear systems by factors that the gradient uses again, and by triangles.

On a CPU large matrices are factored once; elsewhere, and for small ones, the library solves at once
and again for the gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, lapack, linalg, xp_of
from lucid_gpu.devices.lapack import Triangle
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.ops.linalg.matrices import adjoint, lower, upper, with_diagonal
from lucid_gpu.ops.memory_formats import columns_order
from lucid_gpu.ops.record import leads_back, record
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array


class _Way(NamedTuple):
    """How a solution comes about."""

    kept: Triangle | None  # the triangle that is read; None where factors are
    masked: bool = False  # whether the rest of the matrix counts as zeros, not only is so
    turned: bool = False  # whether ``A^H`` stands for ``A``


@op
def solved(A: Tensor, B: Tensor) -> tuple[Tensor, list[int] | None]:
    """Solutions for matrices, and which systems were singular."""
    A, B = _together(A, B)
    return _factored(A, B) if lapack.usable(A.array) else _by_library(A, B)


def _by_library(A: Tensor, B: Tensor) -> tuple[Tensor, list[int] | None]:
    """Solutions for matrices, or for a vector each."""
    array, numbers = linalg.each("solve", A.device, linalg.zero_pivot, A.array, _columns(A, B))
    result = record(
        "LinalgSolveExBackward0", array.reshape(tuple(B.shape)), (A, B), _solved_vjp, (A,),
        A.dtype, keeps_output=True,
    )  # fmt: skip
    return _leading_back(result, A, B), numbers


def _together(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    if A.shape[:-2] == B.shape[:-2]:
        return A, B
    batch = broadcast_shapes([tuple(A.shape[:-2]), tuple(B.shape[:-2])], "linalg.solve")
    return A.expand((*batch, *A.shape[-2:])), B.expand((*batch, *B.shape[-2:]))


def solution(A: Tensor, B: Tensor) -> Tensor:
    """Solutions for matrices; NaN for singular ones."""
    return solved(A, B)[0]


def _solved_vjp(node: Any, g: Tensor) -> Any:
    A, X = node.saved_values
    vectors = X.ndim < A.ndim
    if vectors:
        X, g = X.unsqueeze(-1), g.unsqueeze(-1)
    g_B = solution(adjoint(A), g)
    g_A = -g_B @ adjoint(X) if node.needs_input_grad[0] else None
    return g_A, g_B.squeeze(-1) if vectors else g_B


@batching(solved)
def _solved_batched(level: Batch, f: Any, A: Tensor, B: Tensor) -> Any:
    rank = max(A.ndim, B.ndim)
    X, numbers = f(level.aligned(A, rank), level.aligned(B, rank))
    return level.wrap(X), numbers


def solved_vectors(A: Tensor, B: Tensor) -> tuple[Tensor, list[int] | None]:
    """As `solved` for a vector, or one for each matrix."""
    if not _in_level(A, B) and A.shape[:-1] == B.shape:
        return _factored(A, B) if lapack.usable(A.array) else _by_library(A, B)
    X, numbers = solved(A, B.unsqueeze(-1))
    return X.squeeze(-1), numbers


def _in_level(A: Tensor, B: Tensor) -> bool:
    return bool(open_levels) and innermost((A, B)) is not None


def _factored(A: Tensor, B: Tensor) -> tuple[Tensor, list[int] | None]:
    kept = lapack.triangle_of(A.array) if A.ndim == 2 else None
    if kept is not None:
        return _divided(_Way(kept), A, B), None
    factors, pivots, numbers = lapack.factored(A.array)
    parts = from_array(factors, A.dtype, A.device), from_array(pivots, dt.int64, A.device)
    result = _divided(_Way(None), A, B, *parts)
    return result, numbers if lapack.spoilt(result.array, numbers) else None


def by_triangle(A: Any, B: Any, kept: Triangle, turned: bool = False) -> Any:
    """``A^-1 B``, or ``A^-H B``, where the rest of ``A`` counts as zeros."""
    if not isinstance(A, Tensor):
        return linalg.triangle_divided(A, B, kept)
    if not _in_level(A, B) and lapack.usable(A.array):
        return _divided(_Way(kept, True, turned), *_together(A, B))
    part = triangle(A, kept.upper, kept.unit)
    return solution(adjoint(part) if turned else part, B)


def triangle(A: Tensor, is_upper: bool, unit: bool = False) -> Tensor:
    """One triangle of each matrix, perhaps with ones on the diagonal."""
    kept = upper(A) if is_upper else lower(A)
    return with_diagonal(kept, 1.0) if unit else kept


def _divided(way: _Way, A: Tensor, B: Tensor, *factors: Tensor) -> Tensor:
    columns = _columns(A, B)
    if way.kept is None:
        kept, pivots = factors
        array = lapack.solved(kept.array, pivots.array, columns, way.turned)
    else:
        array = lapack.divided(A.array, columns, way.kept, way.turned)
    name = "LinalgSolveTriangularBackward0" if way.masked else "LinalgSolveExBackward0"
    quotient: Tensor = record(
        name, array.reshape(tuple(B.shape)), (A, B), _divided_vjp, (A, *factors), A.dtype,
        keeps_output=True, way=way,
    )  # fmt: skip
    return _leading_back(quotient, A, B)


def _leading_back(result: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """A solution, where gradients of right hand sides that are matrices lie by columns."""
    return leads_back(result, [None, columns_order(B) if B.ndim == A.ndim else None])


def _columns(A: Tensor, B: Tensor) -> Any:
    """Matrices, or a vector for each matrix as a column."""
    return B.array if B.ndim == A.ndim else B.array[..., None]


def _divided_vjp(node: Any, g: Tensor) -> Any:
    if state.grad or open_levels:
        return _divided_vjp_by_ops(node, g)
    A, *factors, X = node.saved_values
    way = node.way
    g_B = _divided(way._replace(turned=not way.turned), A, g, *factors)
    if not node.needs_input_grad[0]:
        return None, g_B
    left, right = [_columns(A, t) for t in ((X, g_B) if way.turned else (g_B, X))]
    array = backend(A.device).matmul(-left, right.conj().swapaxes(-1, -2), A.dtype)
    if way.masked:
        cut = xp_of(A).triu if way.kept.upper else xp_of(A).tril
        array = cut(array, (1 if way.kept.upper else -1) * way.kept.unit)
    return from_array(array, A.dtype, A.device), g_B


def _divided_vjp_by_ops(node: Any, g: Tensor) -> Any:
    """The same for second gradients and under `vmap`."""
    A, *factors, X = node.saved_values
    way, vectors = node.way, X.ndim < A.ndim
    if vectors:
        X, g = X.unsqueeze(-1), g.unsqueeze(-1)
    if open_levels:
        part = triangle(A, *way.kept) if way.masked else A
        g_B = solution(part if way.turned else adjoint(part), g)
    else:
        g_B = _divided(way._replace(turned=not way.turned), A, g, *factors)
    left, right = (X, g_B) if way.turned else (g_B, X)
    g_A = -left @ adjoint(right)
    if way.masked:
        cut = upper if way.kept.upper else lower
        g_A = cut(g_A, (1 if way.kept.upper else -1) * way.kept.unit)
    return g_A, g_B.squeeze(-1) if vectors else g_B
