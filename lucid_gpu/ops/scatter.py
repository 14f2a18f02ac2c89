"""`scatter`: values put at positions along a dimension."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.kernels import bounds
from lucid_gpu.ops.arguments import (
    guarded,
    require_one_device,
    require_one_dtype,
    require_tensor,
    takes_out,
)
from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.gather import along
from lucid_gpu.ops.in_place import written
from lucid_gpu.ops.index_primitives import with_values
from lucid_gpu.ops.indexing import as_value
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.record import record, watch
from lucid_gpu.ops.reductions import expand_lazily, normalize_dim
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import own
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor


@op
@takes_out
@lying(rule=row_major_order)
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None,
    reduce: str | None = None,
) -> Tensor:  # fmt: skip
    """A copy of the input, of its shape, with ``src`` at ``index`` along a dimension.

    Parameters
    ----------
    index : Tensor of int32 or int64, of the input's rank
        No larger than ``src``, nor than the input apart from ``dim``.
    src : Tensor or number
        A number may also be called ``value``.
    reduce : {"add", "multiply"}, optional
        Join ``src`` to what is there, instead of putting it in its place.

    Raises
    ------
    RuntimeError
        For an ``index`` of another type, rank or of larger size, a position out of bounds (negative
        ones are), a ``src`` of another device, and another ``reduce``.
    IndexError
        For a ``dim`` that there is not.
    """
    require_tensor("scatter", "index", 2, index)
    src = value if src is None else src
    own_shape, sizes = input._expr.shape, index._expr.shape
    if 0 in sizes:
        normalize_dim(dim, len(own_shape))
        return nothing_put(input, src) if isinstance(src, Tensor) else input.clone()
    if not own_shape and len(sizes) < 2:
        if isinstance(src, Tensor):
            src = src.reshape(-1)
        scattered = scatter(input.reshape(1), dim, index.reshape(-1), src, reduce=reduce)
        return own(scattered.reshape(()))
    dim = normalize_dim(dim, len(own_shape))
    if not sizes and len(own_shape) == 1:  # a number counts as a vector of one
        index, sizes = index.reshape(1), (1,)
    where = index.array
    _check_scattered(input, dim, index, src)
    if isinstance(src, Tensor):
        require_one_dtype("scatter(): Expected self.dtype to be equal to src.dtype", input, src)
    value = as_value(input, src)
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError("reduce argument must be either add or multiply.")
        spread = value if value.ndim else expand_lazily(value, sizes)
        joined: Tensor = input.scatter_reduce(
            dim, index, spread, "sum" if reduce == "add" else "prod"
        )
        return joined
    there = input._expr.program.device
    bounds.check(where, own_shape[dim], dim, there, 0, bounds.no_element, wait=True)
    if value._expr.shape not in ((), sizes):
        value = value[tuple([slice(0, n) for n in sizes])]
    result: Tensor = with_values(input, along(where, dim), value)
    watch(result, index)
    return result


def nothing_put(input: Tensor, src: Tensor) -> Tensor:
    """A copy, where no position is given; ``src`` has a gradient of zeros."""
    shape, form = tuple(src.shape), {"dtype": src.dtype, "device": src.device}
    copied: Tensor = record(
        "ScatterBackward0",
        input.array.copy(),
        (input, src),
        lambda node, g: (g, zeros(shape, **form)),
        dtype=input.dtype,
    )
    return copied


@batching(scatter)
def scatter_batched(
    level: Batch, f: Any, x: Tensor, dim: int, index: Tensor, src: Any = None, **options: Any
) -> Any:
    """The rule of ops that write or add ``src`` at positions along a dimension."""
    src = options.pop("value", None) if src is None else src
    if not x.ndim or any(t.ndim != x.ndim for t in (index, src) if isinstance(t, Tensor)):
        return NotImplemented
    source = level.full(src) if isinstance(src, Tensor) else src
    axis = normalize_dim(dim, x.ndim) + 1
    return level.wrap(f(level.full(x), axis, level.full(index), source, **options))


def check_ranks(own: Sized, sizes: Sized, src_shape: Sized) -> None:
    """Refuse an index that has another number of dimensions than what is written, or is read."""
    for name, shape in (("self", own), ("src", src_shape)):
        if len(shape) != len(sizes):
            raise RuntimeError(
                f"Index tensor must have the same number of dimensions as {name} tensor: got "
                f"{len(sizes)} and {len(shape)}"
            )


def is_larger(sizes: Sequence[int], own: Sequence[int], src_shape: Sequence[int], dim: int) -> bool:
    """Whether an index names more than there is, apart from a dimension, or more than comes."""
    return True in [n > src_shape[d] or (n > own[d] and d != dim) for d, n in enumerate(sizes)]


def _check_scattered(input: Tensor, dim: int, index: Tensor, src: Any) -> None:
    if index._expr.program.dtype not in (dt.int32, dt.int64):
        raise RuntimeError("scatter(): Expected dtype int32/int64 for index")
    require_one_device("scatter", input, index, src if isinstance(src, Tensor) else None)
    own, sizes = list(input._expr.shape) or [1], list(index._expr.shape) or [1]
    src_shape = (list(src._expr.shape) if isinstance(src, Tensor) else None) or sizes
    check_ranks(own, sizes, src_shape)
    if is_larger(sizes, own, src_shape, dim):
        raise RuntimeError(
            f"Expected index {sizes} to be no larger than self {own} apart from dimension {dim} "
            f"and to be no larger size than src {list(src_shape)}"
        )


METHODS = (scatter,)
attach(Tensor, guarded(scatter, method=True), scatter_=written(scatter))
