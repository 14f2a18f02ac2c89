"""Sums, means, products and extrema of elements by position, with the same bits every time.

Sums and means are additions by position. Products and extrema NumPy joins in the order of the
elements; on a GPU they are put in the order of their positions, and neighbors of one position
joined over distances that double (a segmented scan: Hillis and Steele, Data Parallel Algorithms,
1986).
"""

from __future__ import annotations

from math import inf
from typing import Any

import lucid_gpu.dtypes as dt
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.kernels.index_add import rows_of
from lucid_gpu.kernels.key_order import places_in_order
from lucid_gpu.ops.arguments import in_float32, require_tensor, takes_out
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.gather import along, gather, keys_of_slices
from lucid_gpu.ops.in_place import alias_before, written
from lucid_gpu.ops.index_add import _by_elements, _checked, scatter_add
from lucid_gpu.ops.record import record, watch
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.scatter import nothing_put, scatter
from lucid_gpu.ops.shape import own
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

_JOINING = {"prod": "multiply", "amax": "maximum", "amin": "minimum"}
_REDUCTIONS = ("sum", "mean", *_JOINING)


@op
@takes_out
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of the input where elements of ``src`` are joined to those ``index`` names.

    Parameters
    ----------
    input : Tensor
    dim : int
        The dimension that ``index`` runs along: see `scatter_add`.
    index : Tensor of int32 or int64, of the input's rank, no larger than ``src``
    src : Tensor, of the input's dtype and rank
    reduce : {"sum", "mean", "prod", "amax", "amin"}
        How elements of one position are joined. A gradient of extrema is shared by equals.
    include_self : bool
        Whether the input's own element is one of those that are joined.

    Returns
    -------
    Tensor, of input's shape

    Raises
    ------
    RuntimeError
        For a position that is negative or beyond the dimension, another ``reduce``, and what
        `scatter_add` refuses.
    IndexError
        For a ``dim`` that there is not.
    """
    require_tensor("scatter_reduce", "index", 2, index)
    require_tensor("scatter_reduce", "src", 3, src)
    if reduce not in _REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if input.ndim < 2:  # a number counts as a vector of one
        index, src = (t if t.ndim else t.reshape(1) for t in (index, src))
    if not input.ndim:
        reduced = scatter_reduce(
            input.reshape(1), dim, index, src, reduce, include_self=include_self
        )
        return own(reduced.reshape(()))
    dim = normalize_dim(dim, input.ndim)
    added = _by_elements(input, dim, index, src)
    if not index.numel():
        return nothing_put(input, src)
    src = src if src.shape == index.shape else src[tuple([slice(n) for n in index.shape])]
    if reduce in _JOINING:
        return _joined(input, dim, index, src, added.keys, reduce, include_self)
    joined = _summed if reduce == "sum" else _averaged
    return joined(input, dim, index, src, include_self)


def _summed(input: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool) -> Tensor:
    return scatter_add(input if include_self else scatter(input, dim, index, 0), dim, index, src)


@in_float32
def _averaged(input: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool) -> Tensor:
    total = _summed(input, dim, index, src, include_self)
    count = _count(input, dim, index, include_self)
    return total / count if input.dtype.category >= 2 else total // count


def _count(input: Tensor, dim: int, index: Tensor, include_self: bool) -> Tensor:
    """How many elements are joined at each position; 1 where there is none."""
    own = input.new_full(input.shape, int(include_self))
    counts = scatter_add(own, dim, index, input.new_ones(index.shape))
    return counts if include_self else counts.where(counts != 0, 1)


@op
def _joined(
    input: Tensor, dim: int, index: Tensor, src: Tensor, keys: Any, reduce: str, include_self: bool
) -> Tensor:
    out = backend(input.device).empty(tuple(input.shape), input.dtype, input.device)
    out[...] = input.array
    if input.device.type == "cpu":
        _join_on_host(xp_of(input), out, dim, index.array, src.array, reduce, include_self)
    elif input.device.type != "meta":
        _join_by_order(input, out, dim, index.array, src.array, keys, reduce, include_self)
    result: Tensor = record(
        "ScatterReduceBackward0", out, (input, src), _joined_vjp, (input, src), input.dtype,
        keeps_output=True, dim=dim, index=index, reduce=reduce, include_self=include_self,
    )  # fmt: skip
    watch(result, index)
    return result


def _join_on_host(
    xp: Any, out: Any, dim: int, index: Any, values: Any, reduce: str, include_self: bool
) -> None:
    """By ``ufunc.at``, which for vectors is one compiled loop."""
    *_, keys = rows_of(along(index, dim), out.shape, xp)
    wide = dt.from_numpy_dtype(out.dtype).compute.numpy  # 16-bit floats are rounded once
    flat, keys = out.reshape(-1).astype(wide, copy=False), keys.reshape(-1)
    join = getattr(xp, _JOINING[reduce])
    if not include_self:
        flat[keys] = _neutral(xp, reduce, flat.dtype)
    run_quietly(join.at, flat, keys, values.reshape(-1).astype(wide, copy=False))
    out[...] = flat.reshape(out.shape)


def _neutral(xp: Any, reduce: str, kind: Any) -> Any:
    """What a value is joined to without a change."""
    if reduce == "prod":
        return 1
    largest = reduce == "amin"
    if kind.kind == "f":
        return inf if largest else -inf
    if kind.kind == "b":
        return largest
    return xp.iinfo(kind).max if largest else xp.iinfo(kind).min


def _join_by_order(
    input: Tensor, out: Any, dim: int, index: Any, values: Any, keys: Any, reduce: str,
    include_self: bool,
) -> None:  # fmt: skip
    xp, rows = xp_of(input), out.reshape(-1)
    join = getattr(xp, _JOINING[reduce])
    slices = keys_of_slices(index, dim, out.shape)
    if slices is not None:  # a key for each slice, instead of one for each element
        keys, values, rows = slices, xp.moveaxis(values, dim, 0), xp.moveaxis(out, dim, 0)
    else:
        values = values.reshape(-1)
    wide = input.dtype.compute.numpy  # 16-bit floats are joined in float32 and rounded once
    places, values = _segments(xp, join, keys, len(rows), values.astype(wide))
    if include_self:
        values = join(rows[places].astype(wide), values)
    rows[places] = values.astype(rows.dtype)


def _segments(xp: Any, join: Any, keys: Any, rows: int, values: Any) -> tuple[Any, Any]:
    """Each key, of so many, once, and its values, or rows of values, joined."""
    keys, order = places_in_order(keys, rows)
    values = values[order]
    first = xp.ones(keys.shape, bool)
    first[1:] = keys[1:] != keys[:-1]
    reach, as_rows = 1, (-1, *[1] * (values.ndim - 1))
    while reach < keys.size:
        same = keys[reach:] == keys[:-reach]
        if not same.any():
            break
        joined = join(values[:-reach], values[reach:])
        both = xp.where(same.reshape(as_rows), joined, values[reach:])
        values = xp.concatenate((values[:reach], both))
        reach *= 2
    last = xp.ones(keys.shape, bool)
    last[:-1] = first[1:]
    return keys[last], values[last]


def _joined_vjp(node: Any, g: Tensor) -> Any:
    x, src, result = node.saved_values
    dim, index = node.dim, node.index
    own, others = (_of_product if node.reduce == "prod" else _of_extremum)(node, g, x, src, result)
    if not node.include_self:
        own = scatter(own, dim, index, 0)
    return own, others


def _of_extremum(node: Any, g: Tensor, x: Tensor, src: Tensor, result: Tensor) -> Any:
    dim, index = node.dim, node.index
    wide = g.dtype.compute  # which counts more than float16 can
    own = (x == result).to(wide)
    if not node.include_self:
        own = scatter(own, dim, index, 0)
        own = where(_touched(x, dim, index), own, 1.0)
    theirs = (src == gather(result, dim, index)).to(wide)
    share = g / scatter_add(own, dim, index, theirs)
    return (own * share).to(g.dtype), (theirs * gather(share, dim, index)).to(g.dtype)


def _touched(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return scatter(x.new_zeros(x.shape, dtype=dt.bool), dim, index, True)


def _of_product(node: Any, g: Tensor, x: Tensor, src: Tensor, result: Tensor) -> Any:
    """The product of the others: the result divided, but where the divisor is the only zero."""
    dim, index = node.dim, node.index
    apart = scatter_reduce(
        where(x == 0, 1.0, x).to(x.dtype), dim, index, src, "prod", include_self=node.include_self
    )
    own = g * apart / where(x == 0, 1.0, x)
    zero = src == 0
    zeros = scatter_add(g.new_zeros(x.shape), dim, index, zero.to(g.dtype))
    if node.include_self:
        zeros = zeros + (x == 0).to(g.dtype)
    safe = where(zero, 1.0, src)
    without = scatter_reduce(
        where(x == 0, 1.0, x) if node.include_self else x, dim, index, safe, "prod",
        include_self=node.include_self,
    )  # fmt: skip
    count = gather(zeros, dim, index)
    rest = gather(g * without, dim, index)
    # beside one other zero the gradient is 0, but what it depends on is that zero
    own_zeros = where(x == 0, x, 0.0) if node.include_self else x.new_zeros(x.shape)
    sums = scatter_add(own_zeros.to(x.dtype), dim, index, where(zero, src, 0.0).to(x.dtype))
    beside = where(count == 2, gather(sums, dim, index) - src, 0.0)
    of_zeros = rest * where(count == 1, 1.0, beside)
    return own, where(zero, of_zeros, gather(g * result, dim, index) / safe)


@op
@takes_out
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """A copy of the input where slices of ``source`` are joined to those ``index`` names.

    Parameters
    ----------
    index : Tensor of int32 or int64, a vector
    source : Tensor
        Of the input's shape, but with as many slices along ``dim`` as there are positions.
    reduce : {"prod", "mean", "amax", "amin"}

    Raises
    ------
    RuntimeError
        For another ``reduce``, and what `index_copy` refuses.
    """
    if reduce not in _REDUCTIONS[1:]:
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    dim = _checked("index_reduce_", input, dim, index, source, False)
    ones = [-1 if d == dim else 1 for d in range(source.ndim)]
    wide = index.reshape(ones).expand(tuple(source.shape)) if ones else index.reshape(())
    return scatter_reduce(input, dim, wide, source, reduce, include_self=include_self)


FUNCTIONS = (scatter_reduce, index_reduce)
METHODS = (*FUNCTIONS, *[written(f, alias_before) for f in FUNCTIONS])
