"""What comes of putting elements in order: unique ones, the k-th, the most frequent, places."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.copies import row_major
from lucid_gpu.kernels import scans
from lucid_gpu.ops.arguments import public, require_one_device, takes_out
from lucid_gpu.ops.creation import as_tensor
from lucid_gpu.ops.named_results import VALUES, result_of
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import along_dim, amax, amin, existing_dim, kept_shape, normalize_dim
from lucid_gpu.ops.sorting import sort
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array

SPARSEST = 4  # counters for each element, beyond which sorting them is as good
Tensors = Tensor | tuple[Tensor, ...]


@op
def msort(input: Tensor) -> Tensor:
    """The values in order along the first dimension; of the input's shape."""
    values: Tensor = sort(input, 0).values
    return values


def _require_order(name: str, d: dt.dtype, bools: bool = True) -> None:
    if d.is_complex or (d is dt.bool and not bools):
        raise dt.unimplemented(name, d)


@op
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The ``k``-th smallest along a dimension, counted from 1, and where it is; NaNs come last.

    RuntimeError for a ``k`` that there is not; NotImplementedError for complex, and bool with
    dimensions; IndexError for a ``dim`` that there is not.

    Both have the input's shape without the dimension, or with extent 1 if ``keepdim``.
    """
    _require_order("kthvalue", input.dtype, bools=not input.ndim or not input.numel())
    dim = normalize_dim(dim, input.ndim)
    extent = input.shape[dim] if input.ndim else 1
    if not extent:
        raise IndexError(f"kthvalue(): Expected reduction dim {dim} to have non-zero size.")
    if not 1 <= k <= extent:
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {dim}: got {k} of {extent}"
        )
    if not input.ndim:
        return VALUES["kthvalue"](input.clone(), input.new_zeros((), dtype=dt.int64))
    order = backend(input.device).argsort(input.detach().array, dim)
    return _at(input, dim, order, k - 1, keepdim, "KthvalueBackward0")


def _at(input: Tensor, dim: int, order: Any, position: Any, keepdim: bool, name: str) -> Any:
    """The elements that ``order`` names at one place of a dimension: a number or an array."""
    xp = xp_of(input)
    if isinstance(position, int):
        position = xp.full(kept_shape(order.shape, (dim,)), position)
    indices = xp.take_along_axis(order, position, dim).astype("int64")
    return input._values_at(dim, from_array(indices, dt.int64, input.device), keepdim, name)


@op
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element along a dimension (the smallest of several), and where one is.

    IndexError for an empty dimension; NotImplementedError for complex tensors.
    """
    _require_order("mode", input.dtype)
    dim = normalize_dim(dim, input.ndim)
    if not input.ndim:
        return VALUES["mode"](input.clone(), input.new_zeros((), dtype=dt.int64))
    if not input.shape[dim]:
        raise IndexError(
            f"mode(): Expected reduction dim {dim} to have non-zero size. Got shape "
            f"{list(input.shape)}"
        )
    xp, array = xp_of(input), input.detach().array
    order = backend(input.device).argsort(array, dim)
    ranked = xp.moveaxis(xp.take_along_axis(array, order, dim), dim, -1)
    places = xp.arange(ranked.shape[-1])
    begins = xp.ones(ranked.shape, bool)
    begins[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    start = scans.accumulated(xp, "maximum", xp.where(begins, places, 0), ranked.ndim - 1)
    longest = xp.moveaxis(xp.argmax(places - start, -1, keepdims=True), -1, dim)
    return _at(input, dim, order, longest, keepdim, "ModeBackward0")


batching(kthvalue, mode)(along_dim)


@result_of("aminmax")
class Extrema(NamedTuple):
    """What `aminmax` gives."""

    min: Tensor
    max: Tensor


@op
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Extrema:
    """Smallest and largest element, of all or along a dimension; RuntimeError for none."""
    over = () if dim is None else dim
    if dim is None and not input.numel():
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
            "identity."
        )
    return Extrema(amin(input, over, keepdim), amax(input, over, keepdim))


# --- equal elements -------------------------------------------------------------------------------


@op
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensors:
    """The different elements, or with ``dim`` slices, in order; every NaN is one of its own.

    Parameters
    ----------
    sorted : bool
        They are put in order in any case.
    return_inverse : bool
        Also give where among them each element of the input is.
    return_counts : bool
        Also give how often each occurs.

    Returns
    -------
    Tensor, or a tuple of it and what was asked for, int64

    Raises
    ------
    NotImplementedError
        For complex tensors.
    IndexError
        For a ``dim`` that there is not.
    RuntimeError
        For slices without elements.
    """
    distinct = _distinct(input, True, return_inverse, return_counts, dim)
    return _without_vjp("_unique2" if dim is None else "unique_dim", input, distinct)


@op
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensors:
    """`unique`, but only neighbors are compared and the order is kept.

    RuntimeError for slices without elements.
    """
    distinct = _distinct(input, False, return_inverse, return_counts, dim)
    return _without_vjp("unique_consecutive", input, distinct)


def _without_vjp(name: str, input: Tensor, distinct: Tensors) -> Tensors:
    """What `unique` found; a gradient that comes to the values is refused, not dropped."""
    wrapper = input._wrapper
    if not input.requires_grad and (wrapper is None or wrapper.level.batches):
        return distinct
    values, *others = distinct if isinstance(distinct, tuple) else (distinct,)
    title = "".join([word.capitalize() for word in name.split("_")])
    values = record(
        f"{title}Backward0", values.array, (input,), _no_vjp, dtype=values.dtype, op=name
    )
    return (values, *others) if others else values


def _no_vjp(node: Any, g: Tensor) -> Any:
    raise NotImplementedError(
        f"the derivative for '{node.op}' is not implemented; give it input.detach()"
    )


def _distinct(
    input: Tensor, in_order: bool, inverse: bool, counts: bool, dim: int | None
) -> Tensors:
    _require_order("unique", input.dtype)
    xp = xp_of(input)
    array = input.detach().array
    whole = dim is None
    axis = 0 if dim is None else existing_dim(dim, input.ndim)
    if not whole and not array.size:
        if array.shape[axis] or 0 in array.shape[:axis] + array.shape[axis + 1 :]:
            raise RuntimeError(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
                "applied"
            )
        none = _whole(input, xp.empty(0, "int64"))
        nothing = input.detach().clone(), *[none.clone() for asked in (inverse, counts) if asked]
        return nothing[0] if len(nothing) == 1 else nothing
    rows = array.reshape(-1) if whole else xp.moveaxis(array, axis, 0)
    if in_order and whole and input.dtype.category == 1 and rows.size:
        low, high = int(rows.min()), int(rows.max())
        if high - low < SPARSEST * rows.size:
            return _counted(input, rows.astype("int64") - low, low, inverse, counts)
    order = _order(input, rows) if in_order else xp.arange(len(rows))
    ranked = rows[order]
    differs = ranked[1:] != ranked[:-1]
    begins = xp.ones(len(rows), bool)
    begins[1:] = differs.reshape(len(differs), -1).any(axis=1) if differs.size else whole
    (starts,) = xp.nonzero(begins)
    values = ranked[starts]
    if not whole:
        values = xp.moveaxis(row_major(values), 0, axis)
    results = [from_array(values, input.dtype, input.device)._keep_order()]
    if inverse:
        places = xp.empty(len(rows), "int64")
        places[order] = xp.cumsum(begins) - 1
        results.append(_whole(input, places.reshape(array.shape) if whole else places))
    if counts:
        ends = xp.concatenate([starts, xp.full(1, len(rows), starts.dtype)])
        results.append(_whole(input, ends[1:] - ends[:-1]))
    return results[0] if len(results) == 1 else tuple(results)


def _counted(input: Tensor, places: Any, low: int, inverse: bool, counts: bool) -> Tensors:
    """`unique` of whole numbers within a small range: each has a counter, nothing is sorted."""
    xp = xp_of(input)
    often = xp.bincount(places)
    (present,) = xp.nonzero(often)
    results = [from_array((present + low).astype(input.dtype.numpy), input.dtype, input.device)]
    if inverse:
        number = xp.cumsum(often > 0) - 1
        results.append(_whole(input, number[places].reshape(tuple(input.shape))))
    if counts:
        results.append(_whole(input, often[present]))
    return results[0] if len(results) == 1 else tuple(results)


def _order(input: Tensor, rows: Any) -> Any:
    """The stable order of elements, or of rows by their first elements, then the second ..."""
    xp = xp_of(input)
    if rows.ndim == 1:
        return backend(input.device).argsort(rows, 0)
    columns = rows.reshape(len(rows), -1).T[::-1]
    if not len(columns):
        return xp.arange(len(rows))
    if input.dtype.itemsize == 2 and input.dtype.category == 2:
        columns = columns.astype("float32")
    return xp.lexsort(row_major(columns))


def _whole(input: Tensor, array: Any) -> Tensor:
    return from_array(array.astype("int64", copy=False), dt.int64, input.device)


@op
@takes_out
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Elementwise: is it one of ``test_elements``? One of the two may be a number.

    Parameters
    ----------
    elements, test_elements : Tensor or number
    assume_unique : bool
        Taken as PyTorch takes it; there is nothing to gain.
    invert : bool
        Ask whether it is none of them.

    Returns
    -------
    Tensor of bool, of the shape of ``elements``

    Raises
    ------
    TypeError
        If neither is a tensor.
    RuntimeError
        For bool and complex.
    """
    like = elements if isinstance(elements, Tensor) else test_elements
    if not isinstance(like, Tensor):
        raise TypeError("isin(): one of 'elements' and 'test_elements' must be a Tensor")
    for t in (elements, test_elements):
        if isinstance(t, Tensor) and (t.dtype is dt.bool or t.dtype.is_complex):
            raise RuntimeError(
                f"Unsupported input type encountered for isin(): {t.dtype.type_name}"
            )
    xp = xp_of(like)
    own, others = [_wide(as_tensor(t, device=like.device)) for t in (elements, test_elements)]
    contained = xp.isin(own, others.reshape(-1), invert=invert)
    return from_array(xp.asarray(contained), dt.bool, like.device)


def _wide(t: Tensor) -> Any:
    array = t.detach().array
    return array.astype(t.dtype.compute.numpy, copy=False) if t.dtype.category > 1 else array


# --- places in what is in order -------------------------------------------------------------------


@op
@takes_out
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values would have to stand, for their sequence to stay in order.

    Parameters
    ----------
    sorted_sequence : Tensor, shape (n,) or (..., n)
        In ascending order along the last dimension.
    input : Tensor or number
        Any shape for one sequence, else (..., k).
    right : bool
        Behind equal elements, not before them; ``side="right"`` says the same.
    sorter : Tensor of int64, optional
        What puts the sequence in order, if it is not.

    Returns
    -------
    Tensor of int64 (or int32), of input's shape

    Raises
    ------
    RuntimeError
        For another ``side``, one that ``right`` contradicts, shapes that do not fit each other, and
        a ``sorter`` of another type or out of range.
    NotImplementedError
        For complex, and values of bool among bools.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise RuntimeError(
            "torch.searchsorted(): side can only be 'left' or 'right' and must agree with right="
            f"True, got side={side}, right={right}"
        )
    values = input
    if not isinstance(input, Tensor):
        values = as_tensor(input, device=sorted_sequence.device)
        if sorted_sequence.dtype is not dt.bool:  # in which a number would lose its size
            values = values.to(sorted_sequence.dtype)
    require_one_device("searchsorted", sorted_sequence, values)
    xp, d = xp_of(values), dt.int32 if out_int32 else dt.int64
    common = dt.promote_types(sorted_sequence.dtype, values.dtype)
    if values.numel():
        _require_order("searchsorted", common, bools=False)
    sequence, wanted = _wide(sorted_sequence.to(common)), _wide(values.to(common))
    if sorter is not None:
        _check_sorter(sorted_sequence, sorter)
        sequence = xp.take_along_axis(sequence, sorter.array, -1)
    behind = right or side == "right"
    if sequence.ndim == 1:
        positions = _in_one_sequence(xp, sequence, wanted, behind, values.device.type == "cpu")
    else:
        if not wanted.ndim:
            raise RuntimeError(
                "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
                f"dimension is 1, but we got boundaries tensor dim({sequence.ndim})"
            )
        if sequence.shape[:-1] != wanted.shape[:-1]:
            raise RuntimeError(
                "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                "dimensions of boundaries tensor and input value tensor must match, but we got "
                f"{list(sequence.shape)} and {list(wanted.shape)}"
            )
        positions = _bisected(xp, sequence, wanted, behind)
    return from_array(xp.asarray(positions).astype(d.numpy), d, values.device)


def _in_one_sequence(xp: Any, sequence: Any, wanted: Any, behind: bool, on_host: bool) -> Any:
    """NumPy takes NaN for the largest; PyTorch searches on behind all that is not larger."""
    floats = sequence.dtype.kind == "f"
    if floats and on_host and xp.isnan(sequence).any():
        return _bisected(xp, sequence, wanted, behind)
    positions = xp.searchsorted(sequence, wanted, side="right" if behind else "left")
    return xp.where(xp.isnan(wanted), len(sequence), positions) if floats else positions


def _check_sorter(sequence: Tensor, sorter: Tensor) -> None:
    if sorter.shape != sequence.shape:
        raise RuntimeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary "
            f"tensor {list(sequence.shape)}and got sorter tensor {list(sorter.shape)}"
        )
    if sorter.dtype is not dt.int64:
        raise RuntimeError(
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
            f"{sorter.dtype.name}"
        )
    if sorter.numel() and (int(sorter.min()) < 0 or int(sorter.max()) >= sequence.shape[-1]):
        raise RuntimeError("torch.searchsorted(): sorter index out of range")


def _bisected(xp: Any, sequence: Any, wanted: Any, behind: bool) -> Any:
    """All binary searches at once, each in its own row, or all in one sequence."""
    low = xp.zeros(wanted.shape, "int64")
    high = xp.full(wanted.shape, sequence.shape[-1], "int64")
    for _ in range(sequence.shape[-1].bit_length()):
        middle = xp.minimum((low + high) // 2, sequence.shape[-1] - 1)
        one = sequence.ndim == 1
        here = sequence[middle] if one else xp.take_along_axis(sequence, middle, -1)
        further = (low < high) & ~(here > wanted if behind else here >= wanted)
        low, high = xp.where(further, middle + 1, low), xp.where(further, high, middle)
        high = xp.maximum(low, high)
    return low


@batching(searchsorted)
def _searchsorted_batched(
    level: Batch, f: Any, sequence: Tensor, values: Any, *, sorter: Any = None, **options: Any
) -> Any:
    if not isinstance(values, Tensor):
        values = as_tensor(values, device=sequence.device).to(sequence.dtype)
    if sequence.ndim == 1 and not level.holds(sequence) and not level.holds(sorter):
        return level.wrap(f(sequence, level.full(values), sorter=sorter, **options))
    sequences = level.full(sequence)
    sorters = None if sorter is None else level.full(sorter)
    wanted, shape = level.full(values), (level.size, *values.shape)
    if sequence.ndim == 1:
        wanted = wanted.reshape((level.size, values.numel()))
    positions = f(sequences, wanted, sorter=sorters, **options)
    return level.wrap(positions.reshape(shape))


@op
@takes_out
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Between which boundaries each element is; `searchsorted` for one sequence.

    RuntimeError where ``boundaries`` is no vector.
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


_OPS: tuple[Any, ...] = (msort, kthvalue, mode, aminmax, unique, unique_consecutive)
METHODS = tuple([public(op) for op in _OPS])
FUNCTIONS = (*METHODS, isin, searchsorted, bucketize)
