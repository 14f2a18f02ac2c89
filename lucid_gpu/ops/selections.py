"""Parts of tensors that a dimension, a mask or a count selects, read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lucid_gpu.dtypes as dt
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.dtypes import unimplemented
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.ops.arguments import guarded, require_one_device, require_tensor, takes_out
from lucid_gpu.ops.gather import index_select
from lucid_gpu.ops.in_place import written
from lucid_gpu.ops.index_primitives import index_tensor, selected_shape, slice_view, with_values
from lucid_gpu.ops.indexing import dynamic_shape, index_put, picked
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.number_ranges import refuse_unheld
from lucid_gpu.ops.record import keeping, watch
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import cat, clone
from lucid_gpu.ops.splitting import narrow
from lucid_gpu.storage import contiguous_format
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array


@op
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One position of a dimension, which goes, as a view.

    IndexError for 0-d tensors, and an ``index`` or ``dim`` that there is not.
    """
    return slice_view(input, _position(input, dim, index), "SelectBackward0")


def _position(input: Tensor, dim: int, index: int) -> tuple[Any, ...]:
    shape = input._expr.shape
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim, index = normalize_dim(dim, len(shape)), int(index)
    extent = shape[dim]
    if not -extent <= index < extent:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
            f"dimension {dim}"
        )
    return (*[slice(None)] * dim, index)


@op
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of the input with ``src`` at one position of a dimension.

    RuntimeError where ``src`` has another shape than what it replaces; IndexError for 0-d tensors,
    and an ``index`` or ``dim`` that there is not.
    """
    return _with_part(input, src, _position(input, dim, index))


@op
@takes_out
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A copy of the input with ``src`` at a slice of a dimension.

    Parameters
    ----------
    src : Tensor
        Of the shape of ``input[start:end:step]``, along ``dim``.
    dim, start, end, step : int

    Raises
    ------
    RuntimeError
        If ``src`` has another shape than what it replaces, and for a ``step`` below 1.
    IndexError
        For a ``dim`` that there is not.
    """
    if step < 1:
        raise RuntimeError("slice step must be positive")
    dim = normalize_dim(dim, input.ndim)
    return _with_part(input, src, (*[slice(None)] * dim, slice(start, end, step)))


def _with_part(input: Tensor, src: Tensor, index: tuple[Any, ...]) -> Tensor:
    wanted = selected_shape(input, index)
    if tuple(src.shape) != wanted:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(wanted)}"
        )
    return with_values(input, index, src.to(input.dtype))


@op
@takes_out
@lying(rule=row_major_order)
def narrow_copy(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """`narrow` as a copy."""
    return narrow(input, dim, start, length).clone()


@op
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of the input with one number at positions of a dimension.

    Parameters
    ----------
    index : Tensor of int64, a vector
    value : number, or Tensor without dimensions

    Raises
    ------
    RuntimeError
        For a value with dimensions, an index of two dimensions or more, and a complex value for
        real numbers.
    IndexError
        For an index of another type, or a position out of bounds.
    """
    require_tensor("index_fill", "index", 2, index)
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    if index.dtype is not dt.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    dim = normalize_dim(dim, input.ndim)
    if isinstance(value, complex) and not input.dtype.is_complex:
        raise RuntimeError(
            "index_fill_(): Converting complex Scalar to non-complex type is not supported"
        )
    if not input.ndim:
        return index_fill(input.reshape(1), 0, index, value).reshape(())
    if isinstance(value, Tensor):
        if value.dtype.is_complex and not input.dtype.is_complex:
            raise RuntimeError(
                "index_fill_(): Converting complex Scalar to non-complex type is not supported"
            )
        refuse_unheld(value, input.dtype)
        value = value.to(input.dtype)
    indices = (*[None] * dim, index.reshape(-1))
    if isinstance(value, Tensor) and value.requires_grad:  # a position named twice is filled once
        named = index_fill(input.new_zeros(input.shape, dtype=dt.bool), dim, index, True)
        return value.where(named, input)
    return index_put(input, indices, value)


@op
def index_put_(
    input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`Tensor.index_put_` as a function."""
    result: Tensor = input.index_put_(indices, values, accumulate)
    return result


@op
@lying(rule=row_major_order)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of the input with the first elements of ``source`` where the mask is true, in order.

    Parameters
    ----------
    mask : Tensor of bool
        Broadcast against the input.
    source : Tensor, of the input's dtype, with as many elements as the mask has true ones

    Raises
    ------
    RuntimeError
        For a mask that is not bool, a source of another type, or one with too few elements.
    """
    require_tensor("masked_scatter", "mask", 1, mask)
    require_tensor("masked_scatter", "source", 2, source)
    require_one_device("masked_scatter", input, mask, source)
    if mask.dtype is not dt.bool:
        raise RuntimeError(
            "masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype.type_name}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{input.dtype.type_name} and {source.dtype.type_name}"
        )
    shape = room_for(input, mask)
    if input.is_meta:  # as many as there are: none is counted
        first = source.reshape(-1)[:1].sum()
        return input.expand(shape).where(mask.logical_not(), first)
    where = mask.expand(shape).detach().array
    count = int(where.sum())
    if count > source.numel():
        raise RuntimeError(
            f"Number of elements of source < number of ones in mask ({source.numel()} < {count})"
        )
    result: Tensor = with_values(input.expand(shape), (where,), source.reshape(-1)[:count])
    watch(result, mask)
    return result


def room_for(*tensors: Tensor) -> tuple[int, ...]:
    """The shape tensors broadcast to."""
    return broadcast_shapes([tuple(t.shape) for t in tensors], "masked_scatter")


@op
@takes_out
@keeping("input")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the (broadcast) mask is true, as a vector.

    RuntimeError for a mask that is not bool, and shapes that do not broadcast.
    """
    if mask.dtype is not dt.bool:
        raise RuntimeError(
            f"masked_select: expected BoolTensor for mask, got {mask.dtype.name}; write mask != 0"
        )
    shape = broadcast_shapes((tuple(input.shape), tuple(mask.shape)), "masked_select")
    return picked("MaskedSelectBackward0", input.expand(shape), mask.expand(shape))


@op
@takes_out
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not zero: a matrix, or a tuple of vectors.

    RuntimeError for ``out`` beside ``as_tuple``.
    """
    xp = xp_of(input)
    array = input.detach().array
    coordinates = xp.nonzero(array if input.ndim else array.reshape(1))
    if as_tuple:
        return tuple([index_tensor(input, a) for a in coordinates])
    columns = xp.stack(coordinates)[: input.ndim].astype("int64")
    return from_array(columns.T, dt.int64, input.device)._keep_order()  # as PyTorch's lie


@batching(masked_select)
def _masked_select_batched(level: Batch, f: Any, input: Tensor, mask: Tensor) -> Any:
    if level.holds(mask):
        raise dynamic_shape("masked_select")
    shape = broadcast_shapes((tuple(input.shape), tuple(mask.shape)), "masked_select")
    batch = level.aligned(input, len(shape)).expand((level.size, *shape))
    return level.wrap(batch[:, mask.expand(shape)])


@batching(nonzero)
def _refused_batched(level: Batch, f: Any, *args: Any, **kwargs: Any) -> None:
    raise dynamic_shape(f.__name__)


@op
def argwhere(input: Tensor) -> Tensor:
    """The positions of the elements that are not zero, one for each row."""
    coordinates: Tensor = nonzero(input)
    return coordinates


@op
@takes_out
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """`nonzero` with a given number of rows: cut, or filled up with one number.

    RuntimeError for a negative ``size``.
    """
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    if input.is_meta:
        return input.new_empty((size, input.ndim), dtype=dt.int64)
    coordinates = nonzero(input)[:size]
    rest = coordinates.new_full((size - coordinates.shape[0], coordinates.shape[1]), fill_value)
    return cat([coordinates, rest], 0)


@op
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element, or each slice of a dimension, several times in a row.

    Parameters
    ----------
    input : Tensor
        Alone, counts: the result says which position each repetition is of.
    repeats : int or Tensor of int32 or int64
        How often: once for all, or for each position.
    dim : int, optional
        Without it the tensor is taken as a vector.
    output_size : int, optional
        The sum of the counts, where it is known: a GPU is then not waited for.

    Raises
    ------
    RuntimeError
        For ``repeats`` that are negative or do not fit the dimension, and another ``output_size``
        than their sum.
    NotImplementedError
        For counts of another type than int32 and int64.
    IndexError
        For a ``dim`` that there is not.
    """
    if repeats is None:
        return _repeated_positions(input, output_size)
    if dim is None:
        input, dim = input.reshape(-1), 0
    dim = normalize_dim(dim, input.ndim)
    if isinstance(repeats, Tensor) and repeats.numel() == 1 and repeats.ndim < 2:
        repeats = int(repeats.item())
    if not isinstance(repeats, Tensor):
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        shape = list(input.shape)
        spread = [*shape[: dim + 1], repeats, *shape[dim + 1 :]]
        shape[dim] *= repeats
        repeated = input.unsqueeze(dim + 1).expand(spread)
        return clone(repeated, memory_format=contiguous_format).reshape(shape)
    require_one_device("repeat_interleave", input, repeats)
    if repeats.ndim == 1 and repeats.shape[0] != input.shape[dim]:
        raise RuntimeError(
            "repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{repeats.shape[0]} and input.size({dim}) = {input.shape[dim]}"
        )
    return index_select(input, dim, _repeated_positions(repeats, output_size))


def _repeated_positions(counts: Tensor, total: int | None) -> Tensor:
    if counts.ndim != 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if counts.dtype not in (dt.int32, dt.int64):
        raise unimplemented("repeat_interleave", counts.dtype, ": repeats are int32 or int64")
    xp, array = xp_of(counts), counts.array
    ends = xp.cumsum(array)
    if total is None:
        if array.size and int(array.min()) < 0:
            raise RuntimeError("repeats can not be negative")
        total = int(ends[-1]) if array.size else 0
    elif array.size and backend(counts.device).to_numpy(ends[-1:])[0] != total:
        raise RuntimeError("allocated size does not match required size")
    places = xp.searchsorted(ends, xp.arange(total), side="right")
    return from_array(places.astype(array.dtype), counts.dtype, counts.device)


_OPS: tuple[Callable[..., Any], ...] = (
    select, select_scatter, slice_scatter, narrow_copy, index_fill, masked_scatter, argwhere,
    nonzero_static, repeat_interleave,
)  # fmt: skip
_BOTH = tuple(map(guarded, _OPS))
_PICKING = (masked_select, nonzero)
METHODS = (
    *_BOTH,
    *[guarded(op, method=True) for op in _PICKING],
    written(index_fill),
    written(masked_scatter),
)
FUNCTIONS = (*_BOTH, *_PICKING, index_put_)
