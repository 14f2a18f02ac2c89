"""Adding to positions, with the same bits every time; index_copy beside it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.kernels import bounds
from lucid_gpu.kernels import index_add as kernels
from lucid_gpu.ops.arguments import require_one_device, require_tensor, takes_out
from lucid_gpu.ops.elementwise import factors_in
from lucid_gpu.ops.gather import along, gather, index_select, keys_of_slices
from lucid_gpu.ops.in_place import before_write, refuse_recorded, written
from lucid_gpu.ops.index_primitives import with_values
from lucid_gpu.ops.indexing import require_long
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.mirrors import bits_of
from lucid_gpu.ops.record import full_tangents, keeping, record, watch
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.scatter import check_ranks, is_larger, scatter_batched
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor


class Addition(NamedTuple):
    """What is added where: rows of ``source`` to the rows ``keys`` of a tensor seen as ``shape``.

    Attributes
    ----------
    name : str
    shape : tuple of int
        (outer, rows, columns)
    keys : array
    source : Tensor
    again : callable
        The op, as a function of input and source: it is linear in both.
    taken : callable
        Its adjoint: the part of a cotangent that belongs to the source.
    read : Tensor
        The index tensor, which both of them read.
    """

    name: str
    shape: tuple[int, int, int]
    keys: Any
    source: Tensor
    again: Callable[[Tensor, Tensor], Tensor]
    taken: Callable[[Tensor], Tensor]
    read: Tensor


@op
@takes_out
@keeping("source", apart=True)
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """A copy of the input with slices added at positions of a dimension.

    Parameters
    ----------
    input : Tensor
    dim : int
    index : Tensor of int32 or int64, shape (n,)
        Repeated positions add up, in a fixed order.
    source : Tensor
        Of the input's dtype and shape, but with ``n`` slices along ``dim``.
    alpha : float
        A factor of ``source``.

    Returns
    -------
    Tensor, of input's shape

    Raises
    ------
    IndexError
        For a position that is negative or beyond the dimension.
    RuntimeError
        For an ``index`` of another type or length, and a ``source`` of another type or shape.
    """
    return _added(input, _by_slices(input, dim, index, source, alpha))


@batching(index_add)
def _index_add_batched(
    level: Batch, f: Any, x: Tensor, dim: int, index: Tensor, source: Tensor, **options: Any
) -> Any:
    if level.holds(index) or not x.ndim:
        return NotImplemented
    axis = normalize_dim(dim, x.ndim) + 1
    return level.wrap(f(level.full(x), axis, index, level.full(source), **options))


@op
def index_add_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """`index_add` in place: rows that get nothing are not touched."""
    require_tensor("index_add", "source", 3, source)
    if _alone(self, source):
        return _add_in_place(self, "index_add_", _by_slices(self, dim, index, source, alpha, True))
    before = before_write(self, "index_add_", source)
    return self._write(index_add(before, dim, index, source, alpha=alpha), "index_add_")


@op(autocast={"cuda": "promote"})
@takes_out
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of the input with ``src`` added at ``index`` along a dimension.

    ``out[index[i][j]][j] += src[i][j]`` for ``dim == 0``, and so on.

    Parameters
    ----------
    input : Tensor
    dim : int
    index : Tensor of int32 or int64, of the input's rank
        No larger than ``src``, nor than the input apart from ``dim``. Repeated positions add up,
        in a fixed order.
    src : Tensor, of the input's dtype and rank

    Returns
    -------
    Tensor, of input's shape

    Raises
    ------
    RuntimeError
        For a position that is negative or beyond the dimension, an ``index`` of another type, rank
        or of larger size, and a ``src`` of another type or rank.
    IndexError
        For a ``dim`` that there is not.
    """
    return _added(input, _by_elements(input, dim, index, src))


batching(scatter_add)(scatter_batched)


@op
def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`scatter_add` in place: elements that get nothing are not touched.

    RuntimeError as there.
    """
    require_tensor("scatter_add", "src", 3, src)
    if _alone(self, src):
        return _add_in_place(self, "scatter_add_", _by_elements(self, dim, index, src, True))
    before = before_write(self, "scatter_add_", src)
    return self._write(scatter_add(before, dim, index, src), "scatter_add_")


@op(autocast={"cpu": "promote"})
@takes_out
@lying(rule=row_major_order)
@keeping("source", apart=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of the input with slices of ``source`` at positions of a dimension.

    RuntimeError for an ``index`` of another type than int64, a ``source`` of another type or shape,
    and another number of slices; IndexError for an ``index`` of two dimensions or more.
    """
    require_long("index_copy_()", index)
    if not source.ndim and input.ndim == 1:  # a number counts as a vector of one, and back
        source = source.reshape(1)
    elif not input.ndim and tuple(source.shape) == (1,):
        source = source.reshape(())
    dim = _checked("index_copy_", input, dim, index, source, True)
    if not input.ndim:
        return with_values(input, (), source.reshape(()))
    where = index.array.reshape(-1)
    result: Tensor = with_values(input, (*[slice(None)] * dim, where), source)
    watch(result, index)
    return result


# --- what is added where --------------------------------------------------------------------------


def _by_slices(
    input: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float, wait: bool = False
) -> Addition:
    dim = _checked("index_add_", input, dim, index, source, wait)
    if alpha != 1:
        source = source * factors_in(input.dtype, alpha)[0]
    shape = tuple(input.shape) or (1,)
    return Addition(
        "IndexAddBackward0",
        (prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])),
        index.array.reshape(-1),
        source,
        lambda x, s: index_add(x, dim, index, s),
        lambda g: index_select(g, dim, index).reshape(tuple(source.shape)),
        index,
    )


def _checked(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor, wait: bool) -> int:
    """The dimension from 0, after all that can be wrong."""
    require_tensor(name.rstrip("_"), "index", 2, index)
    require_tensor(name.rstrip("_"), "source", 3, source)
    require_one_device(name.rstrip("_"), input, index, source)
    dim = normalize_dim(dim, input.ndim)
    if index.dtype.name not in ("int32", "int64"):
        raise RuntimeError(
            f"{name}(): Expected dtype int32/int64 for index but got: {index.dtype.type_name}"
        )
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with type: "
            f"{index.dtype.type_name} and size: {list(index.shape)}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): self ({input.dtype.type_name}) and source ({source.dtype.type_name}) must "
            "have the same scalar type; convert it with source.to(x.dtype)"
        )
    own, theirs = list(input.shape), list(source.shape)
    if own[:dim] + own[dim + 1 :] != theirs[:dim] + theirs[dim + 1 :] or len(own) != len(theirs):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {own} source.shape = {theirs}"
        )
    count = theirs[dim] if theirs else 1
    if index.numel() != count:
        raise RuntimeError(
            f"{name}(): Number of indices ({index.numel()}) should be equal to source.size(dim): "
            f"({count}), for dim: {dim}"
        )
    size = own[dim] if own else 1
    added = len(own) > 1 and name == "index_add_"
    fault = bounds.no_element if added else bounds.outside  # PyTorch's RuntimeError
    bounds.check(index.array, size, dim, input.device, 0, fault, wait=wait)
    return dim


def _by_elements(
    input: Tensor, dim: int, index: Tensor, src: Tensor, wait: bool = False
) -> Addition:
    require_tensor("scatter_add", "index", 2, index)
    require_tensor("scatter_add", "src", 3, src)
    require_one_device("scatter_add", input, index, src)
    dim = normalize_dim(dim, len(input._expr.shape))
    if index._expr.program.dtype not in (dt.int32, dt.int64):
        raise RuntimeError("scatter(): Expected dtype int32/int64 for index")
    there, d = input._expr.program.device, input._expr.program.dtype
    if src._expr.program.dtype is not d:
        raise RuntimeError(
            "scatter(): Expected self.dtype to be equal to src.dtype; convert it with "
            "src.to(x.dtype)"
        )
    shape, sizes = input._expr.shape or (1,), index._expr.shape or (1,)
    src_shape = src._expr.shape or (1,)
    if 0 not in sizes:
        check_ranks(shape, sizes, src_shape)
        if is_larger(sizes, shape, src_shape, dim):
            raise RuntimeError(
                f"Expected index {list(sizes)} to be no larger than self {list(shape)} apart from "
                f"dimension {dim} and to be no larger size than src {list(src_shape)}"
            )
        if src_shape != sizes:
            src = src.reshape(src_shape)[tuple([slice(0, n) for n in sizes])]
    where = index.array.reshape(sizes)
    slices = keys_of_slices(where, dim, shape)
    checked = where if slices is None else slices
    bounds.check(checked, shape[dim], dim, there, 0, bounds.no_element, wait=wait)
    keys, seen = None, (1, prod(shape), 1)
    if slices is not None:
        keys, seen = slices, (prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :]))
    elif 0 not in sizes:
        keys = kernels.flat_places(along(where, dim), shape, backend(there).xp).reshape(-1)
    return Addition(
        "ScatterAddBackward0",
        seen,
        where.reshape(-1) if keys is None else keys,
        src,
        lambda x, s: scatter_add(x, dim, index, s),
        lambda g: gather(g, dim, index) if index.numel() else src.new_zeros(src.shape),
        index,
    )


# --- the addition ---------------------------------------------------------------------------------


def _add(array: Any, what: Addition, values: Any, where: device) -> None:
    outer, _, columns = what.shape
    if what.keys.size:
        values = values.reshape(outer, what.keys.size, columns)
        kernels.index_add(array.reshape(what.shape), what.keys, values, where)


def _added(input: Tensor, what: Addition) -> Tensor:
    program = input._expr.program
    d, where = program.dtype, program.device
    array = backend(where).empty(input._expr.shape, d, where)
    array[...] = input.array
    _add(array, what, what.source.array, where)
    result: Tensor = record(
        what.name, array, (input, what.source), _added_vjp,
        dtype=d, again=what.again, taken=what.taken,
    )  # fmt: skip
    if what.source._expr.program.needs_grad:  # else PyTorch's op does not save it either
        watch(result, what.read)
    return result


def _added_vjp(node: Any, g: Tensor) -> Any:
    rest, part = node.needs_input_grad
    return g if rest else None, node.taken(g) if part else None


@jvp(_added_vjp)
def _added_jvp(call: Call) -> Any:
    return [call.attributes["again"](*full_tangents(call))]


def _alone(self: Tensor, source: Tensor) -> bool:
    """Whether an array can be added to as it is: nothing is recorded, and nobody else is in it."""
    if open_levels and innermost((self, source)) is not None or bits_of(self):
        return False
    if state.grad and (self._expr.program.needs_grad or source._expr.program.needs_grad):
        return False
    shared = self._storage is not None and self._storage is source._storage
    return not shared and bool(self.array.flags.c_contiguous)


def _add_in_place(self: Tensor, name: str, what: Addition) -> Tensor:
    if state.grad:
        refuse_recorded(self, False, name)
    values = what.source.array  # computed before anything is written
    array, where = self._writable(name), self._expr.program.device
    if backend(where).xp.may_share_memory(array, values):  # threads write what others still read
        values = values.copy()
    _add(array, what, values, where)
    return self


METHODS = (index_add, scatter_add, index_copy)
attach(Tensor, *METHODS)
attach(Tensor, index_add_, scatter_add_, index_copy_=written(index_copy))
