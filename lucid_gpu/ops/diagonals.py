"""Diagonals of matrices, seen, summed, placed and written; triangles."""

from __future__ import annotations

import functools
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.copies import strided
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.arguments import guarded, public, require_tensor, takes_out
from lucid_gpu.ops.in_place import written
from lucid_gpu.ops.index_parsing import Distinct
from lucid_gpu.ops.index_primitives import with_values, zeros_with_values
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.record import leads_back, record
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import base_array, movedim, owned, view_of
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, apply, from_array


@op
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals of the planes of two dimensions, as a view of shape ``(*others, n)``.

    Parameters
    ----------
    input : Tensor, of two dimensions or more
    offset : int
        Above the main diagonal where positive, below it where negative.
    dim1, dim2 : int
        The planes' rows and columns.

    Returns
    -------
    Tensor
        Of the other dimensions and one more, which runs along the diagonals.

    Raises
    ------
    RuntimeError
        If the two dimensions are one.
    IndexError
        For an invalid dimension.
    """
    a, b = _plane("diagonal", input.ndim, dim1, dim2)
    array = base_array(input)
    shape, strides = array.shape, array.strides
    count = _length(shape[a], shape[b], offset)
    rest = [d for d in range(array.ndim) if d not in (a, b)]
    first: list[Any] = [slice(None)] * array.ndim
    if count:
        first[b if offset > 0 else a] = slice(abs(offset), None)
    seen = strided(
        array[tuple(first)],
        (*[shape[d] for d in rest], count),
        (*[strides[d] for d in rest], strides[a] + strides[b]),
    )
    view = view_of(
        input, "DiagonalBackward0", seen, _diagonal_vjp, (diagonal, (offset, a, b)),
        offset=offset, dims=(a, b), shape=tuple(input.shape),
    )  # fmt: skip
    return leads_back(view, tuple(range(len(shape))))


def _plane(name: str, rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    if not rank:  # with what PyTorch says of a number
        raise IndexError(f"Dimension specified as {dim1} but tensor has no dimensions")
    a, b = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if a == b:
        raise RuntimeError(f"{name} dimensions cannot be identical {dim1}, {dim2}")
    return a, b


def _length(rows: int, columns: int, offset: int) -> int:
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


def _diagonal_vjp(node: Any, g: Tensor) -> Any:
    a, b = node.dims
    rest = [n for d, n in enumerate(node.shape) if d not in node.dims]
    planes = _embedded(g, (*rest, node.shape[a], node.shape[b]), node.offset)
    return (movedim(planes, (-2, -1), (a, b)),)


@batching(diagonal)
def _diagonal_batched(
    level: Batch, f: Any, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    a, b = _plane("diagonal", x.ndim, dim1, dim2)
    return level.wrap(f(level.value(x), offset, a + 1, b + 1))


def _where(input: Tensor, shape: tuple[int, ...], offset: int) -> Distinct:
    """The index of the diagonals of planes that lie in the last two dimensions."""
    along = xp_of(input).arange(_length(shape[-2], shape[-1], offset))
    return Distinct((..., along - min(offset, 0), along + max(offset, 0)))


def _embedded(values: Tensor, shape: tuple[int, ...], offset: int) -> Tensor:
    """Zeros with these values on the diagonals."""
    return zeros_with_values(values, _where(values, shape, offset), shape)


@op
@owned
@lying(rule=row_major_order)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension as the diagonals of square planes, zeros elsewhere.

    Parameters
    ----------
    dim1, dim2 : int
        The dimensions of rows and columns in the result.

    Raises
    ------
    IndexError
        For 0-d tensors, and an invalid dimension.
    RuntimeError
        For one dimension given twice.
    """
    if not input.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    a, b = _plane("diagonal", input.ndim + 1, dim1, dim2)
    n = input.shape[-1] + abs(offset)
    return movedim(_embedded(input, (*input.shape[:-1], n, n), offset), (-2, -1), (a, b))


@op
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector on the diagonal of a square matrix, or a copy of a matrix's diagonal.

    RuntimeError for another number of dimensions.
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return _diagonal(input, diagonal).clone()


_diagonal = diagonal  # `diag` has an argument of that name


@op
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """All elements on the diagonal of a square matrix."""
    return diag_embed(input.reshape(-1), offset)


@op(autocast={"cpu": "float32"})
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal.

    RuntimeError for anything but a matrix; NotImplementedError for bool.
    """
    if input.ndim != 2:
        raise RuntimeError("trace: expected a matrix")
    if input.dtype is dt.bool:
        raise dt.unimplemented("trace", input.dtype)
    return diagonal(input).sum()


@op
@owned
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of the input with ``src`` on its diagonals: see `diagonal` for their shape.

    RuntimeError where ``src`` has another shape, and for one dimension given twice; IndexError for
    an invalid dimension.
    """
    require_tensor("diagonal_scatter", "src", 2, src)
    a, b = _plane("diagonal", input.ndim, dim1, dim2)
    planes = movedim(input, (a, b), (-2, -1))
    shape = tuple(planes.shape)
    count = _length(shape[-2], shape[-1], offset)
    if tuple(src.shape) != (*shape[:-2], count):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {[*shape[:-2], count]}"
        )
    index = _where(input, shape, offset)
    return movedim(with_values(planes, index, src.to(input.dtype)), (-2, -1), (a, b))


@op
def fill_diagonal(input: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """A copy with one number where all positions are equal.

    Parameters
    ----------
    wrap : bool
        Go on after as many rows as there are columns, in tall matrices.
    """
    shape = tuple(input.shape)
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    xp = xp_of(input)
    if len(shape) == 2 and wrap and shape[0] > shape[1]:
        flat = xp.arange(0, shape[0] * shape[1], shape[1] + 1)
        index: tuple[Any, ...] = (flat // shape[1], flat % shape[1])
    else:
        index = (xp.arange(min(shape)),) * len(shape)
    value = input.new_full((), fill_value)
    return with_values(input, Distinct(index), value)


@op
@takes_out
@lying(rule=row_major_order)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of a matrix, zeros above.

    RuntimeError for fewer than two dimensions.
    """
    return _triangle(input, "tril", diagonal, _tril_vjp)


def _tril_vjp(node: Any, g: Tensor) -> Any:
    return (tril(g, node.diagonal),)


@op
@takes_out
@lying(rule=row_major_order)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of a matrix, zeros below.

    RuntimeError for fewer than two dimensions.
    """
    return _triangle(input, "triu", diagonal, _triu_vjp)


def _triu_vjp(node: Any, g: Tensor) -> Any:
    return (triu(g, node.diagonal),)


@batching(tril, triu)
def _triangle_batched(level: Batch, f: Any, x: Tensor, diagonal: int = 0) -> Any:
    return level.wrap(f(level.value(x), diagonal)) if x.ndim > 1 else NotImplemented


def _triangle(input: Tensor, name: str, diagonal: int, vjp: Any) -> Tensor:
    program, shape = input._expr.program, input._expr.shape
    if len(shape) < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    d, where = program.dtype, program.device
    few = where.type == "cpu" and shape[-2] * shape[-1] <= KEPT
    make = _kept_mask if few else _mask
    mask = from_array(make(backend(where).xp, name, shape[-2], shape[-1], diagonal), dt.bool, where)
    apart = input if program.independent and input._wrapper is None else input.detach()
    kept = apply(TABLE["where"], mask, apart, False if d is dt.bool else 0)
    title = f"{name.capitalize()}Backward0"
    result: Tensor = record(title, kept, (input,), vjp, dtype=d, diagonal=diagonal)
    return result


def _mask(xp: Any, name: str, rows: int, columns: int, diagonal: int) -> Any:
    return getattr(xp, name)(xp.ones((rows, columns), bool), diagonal)


_kept_mask = functools.lru_cache(maxsize=64)(_mask)  # which nobody writes
KEPT = 1 << 12  # elements of masks that are kept


_BOTH = tuple([public(f) for f in (diagonal, diag, diag_embed, diagflat, trace, diagonal_scatter)])
_TRIANGLES = (tril, triu)
METHODS = (
    *_BOTH,
    *[guarded(op, method=True) for op in _TRIANGLES],
    *[written(op) for op in (fill_diagonal, tril, triu)],
)
FUNCTIONS = (*_BOTH, *_TRIANGLES)
