"""Reading along a dimension by index tensors: `gather`, `take_along_dim`, `index_select`."""

from __future__ import annotations

from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import owners
from lucid_gpu.devices.device_errors import DeviceError
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.kernels import bounds
from lucid_gpu.ops.arguments import guarded, put_into, require_one_device, require_tensor, takes_out
from lucid_gpu.ops.index_parsing import Distinct
from lucid_gpu.ops.index_primitives import read
from lucid_gpu.ops.indexing import picked
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.named_results import values_and_indices
from lucid_gpu.ops.record import keeping, watch
from lucid_gpu.ops.reductions import existing_dim, normalize_dim
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import own
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor

_PERMUTES = ("SortBackward0", "TopkBackward0")  # they name no position twice


@op
@keeping("input")
def gather(
    input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Any = None
) -> Tensor:
    """``out[i][j] = input[index[i][j]][j]`` for ``dim == 0``, and so on; of the shape of ``index``.

    Parameters
    ----------
    index : Tensor of int64, of the input's rank, no larger than it in other dimensions

    Raises
    ------
    RuntimeError
        For an ``index`` of another type, rank or of larger size, and a position out of bounds;
        negative ones are.
    IndexError
        For a ``dim`` that there is not.
    """
    if out is not None:
        return put_into(gather(input, dim, index), out, "gather")
    return _gather(input, dim, index, low=0, fault=bounds.no_element)


def _gather(input: Tensor, dim: int, index: Tensor, **checks: Any) -> Tensor:
    require_tensor("gather", "index", 2, index)
    require_one_device("gather", input, index)
    shape, sizes = input._expr.shape, index._expr.shape
    dim = normalize_dim(dim, len(shape))
    if 0 in sizes:  # of any rank and type, as in PyTorch
        return input.reshape(-1)[:0].reshape(index.shape).clone()  # no view
    if index._expr.program.dtype not in (dt.int32, dt.int64):
        raise RuntimeError("gather(): Expected dtype int32/int64 for index")
    if len(shape) + len(sizes) < 2:  # the other one may be a vector
        elements = _gathered("GatherBackward0", input.reshape(-1), dim, index.reshape(-1), **checks)
        return own(elements.reshape(index.shape))
    if len(shape) != len(sizes):
        raise RuntimeError(
            "Index tensor must have the same number of dimensions as input tensor: got "
            f"{len(sizes)} and {len(shape)}"
        )
    for d, (n, m) in enumerate(zip(sizes, shape, strict=True)):
        if n > m and d != dim:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(sizes)} to be "
                f"no larger than self {list(shape)} apart from dimension {dim}"
            )
    return lay(_gathered("GatherBackward0", input, dim, index, **checks), None)


@op
def _gathered(
    name: str,
    input: Tensor,
    dim: int,
    index: Tensor,
    keepdim: bool = True,
    low: int | None = None,
    fault: DeviceError | None = bounds.outside,
) -> Tensor:
    """`gather`, recorded under a name; without ``keepdim`` the dimension, of extent 1, goes.

    ``low`` and ``fault`` are those of `kernels.bounds.check`; None for positions that are there.
    """
    shape = input._expr.shape
    dim = normalize_dim(dim, len(shape))
    if not shape:
        return input.clone()
    where = index.array
    slices = keys_of_slices(where, dim, shape) if keepdim and 0 in where.strides else None
    named = where if slices is None else slices
    if fault is not None:
        bounds.check(named, shape[dim], dim, input._expr.program.device, low, fault)
    key: Any = (*[slice(None)] * dim, named)
    if slices is None:
        key = along(where, dim)
        if not keepdim:
            key = tuple([part.squeeze(dim) for part in key])
    if where.shape[dim] == 1 or name in _PERMUTES:
        key = Distinct(key)
    result = read(name, input, key)
    watch(result, index)
    return result


@batching(_gathered)
def _gathered_batched(
    level: Batch, f: Any, name: str, x: Tensor, dim: int, index: Tensor, *args: Any, **named: Any
) -> Any:
    if not x.ndim:
        return NotImplemented
    axis = normalize_dim(dim, x.ndim) + 1
    return level.wrap(f(name, level.full(x), axis, level.full(index), *args, **named))


def _values_at(input: Tensor, dim: int, where: Tensor, keepdim: bool, name: str) -> Any:
    """The elements at one position along a dimension, and the positions."""
    values = _gathered(name, input, dim, where, keepdim, fault=None)
    return values_and_indices(name, values, where if keepdim else where.squeeze(dim))


@op
@takes_out
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, where other dimensions broadcast; without ``dim``, of the flattened tensor.

    RuntimeError if ranks differ, and for indices of another type than int64 (without ``dim``, than
    int32 and int64); IndexError for a ``dim`` that there is not, and a position out of bounds.
    """
    require_tensor("take_along_dim", "indices", 2, indices)
    if dim is None:
        return _gather(input.reshape(-1), 0, indices.reshape(-1))
    if indices.dtype is not dt.int64:
        raise RuntimeError(
            "torch.take_along_dim(): dtype of indices should be Long but got "
            f"{indices.dtype.type_name}: indices.long()"
        )
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = existing_dim(dim, input.ndim)
    shapes = [(*t.shape[:dim], 1, *t.shape[dim + 1 :]) for t in (input, indices)]
    if shapes[0] != shapes[1]:
        wide = broadcast_shapes(shapes, "take_along_dim")
        input, indices = (
            t.expand((*wide[:dim], t.shape[dim], *wide[dim + 1 :])) for t in (input, indices)
        )
    return _gather(input, dim, indices)


@op
@takes_out
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a dimension named by a vector of positions.

    IndexError for an ``index`` of two dimensions or more, and a position that is negative or beyond
    the dimension; RuntimeError for an ``index`` of another type than int32 and int64.
    """
    require_tensor("index_select", "index", 2, index)
    require_one_device("index_select", input, index)
    shape, d = input._expr.shape, index._expr.program.dtype
    dim = normalize_dim(dim, len(shape))
    if len(index._expr.shape) > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if d not in (dt.int32, dt.int64):
        raise RuntimeError(f"index_select(): Expected dtype int32 or int64 for index, got {d.name}")
    if not shape:
        if index.numel() != 1:
            raise RuntimeError(
                "index_select(): Index to scalar can have only 1 value, got "
                f"{index.numel()} value(s)"
            )
        first = picked("IndexSelectBackward0", input.reshape(1), (index.reshape(-1),))
        return own(first.reshape(()))
    if len(shape) > 1 and not shape[dim] and index.numel():
        raise RuntimeError("index_select(): self indexing axis dim should be positive")
    lead, vector = (slice(None),) * dim, index if index._expr.shape else index.reshape(-1)
    return lay(picked("IndexSelectBackward0", input, (*lead, vector)), None)


def along(index: Any, dim: int) -> tuple[Any, ...]:
    """The index tuple that walks ``index`` along one dimension."""
    rank, owner = index.ndim, owners[type(index)]
    where, grids = owner.device_of(index), []
    for d in range(rank):
        shape = [1] * rank
        shape[d] = index.shape[d]
        if d == dim:
            grids.append(index)
        else:
            grids.append(owner.arange(index.shape[d], dt.int64, where).reshape(shape))
    return tuple(grids)


def keys_of_slices(index: Any, dim: int, shape: tuple[int, ...]) -> Any:
    """The vector that an index was expanded from to name whole slices of a shape, or None."""
    if 0 not in index.strides:
        return None
    if not index.size or len(shape) == 1:
        return None
    for d, (step, n) in enumerate(zip(index.strides, index.shape, strict=True)):
        if d != dim and (step or n != shape[d]):
            return None
    return index[tuple([slice(None) if d == dim else 0 for d in range(len(shape))])]


METHODS = (gather, take_along_dim, index_select)
attach(Tensor, *[guarded(op, method=True) for op in METHODS])  # axis= too
attach(Tensor, _values_at=_values_at)
