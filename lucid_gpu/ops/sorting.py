"""`sort`, `argsort` and `topk`; what comes of an order is in `ops.order`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.ordering import leading
from lucid_gpu.ops.arguments import guarded, takes_out
from lucid_gpu.ops.gather import gathered
from lucid_gpu.ops.index_primitives import index_tensor
from lucid_gpu.ops.memory_formats import lying
from lucid_gpu.ops.named_results import VALUES
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor

Op = TypeVar("Op", bound=Callable[..., Any])

SORTED = 1 << 11  # elements whose order is found as soon as the first few


def _alone_or_by_name(function: Op) -> Op:
    """Beside ``stable``, PyTorch takes the other arguments by their names only."""

    @functools.wraps(function)
    def body(*args: Any, **kwargs: Any) -> Any:
        if "stable" in kwargs and len(args) > 1:
            raise TypeError(
                f"{function.__name__}() received an invalid combination of arguments - beside "
                "stable= write dim= and descending= by name"
            )
        return function(*args, **kwargs)

    return cast(Op, body)


@op
@takes_out
@lying("input")
@_alone_or_by_name
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Any:
    """Values in order along a dimension, and where they came from (int64); of the input's shape.

    Parameters
    ----------
    dim : int
    descending : bool
        The largest first.
    stable : bool, optional
        Equal elements stay in order in any case. Beside it, the others are given by their names.

    Returns
    -------
    values, indices
        NaN counts as larger than all numbers.

    Raises
    ------
    RuntimeError
        For complex tensors.
    IndexError
        For a ``dim`` that there is not.
    TypeError
        For ``dim`` or ``descending`` by position beside ``stable``.
    """
    where = argsort(input, dim, descending)
    return VALUES["sort"](gathered("SortBackward0", input, dim, where), where)


@op
@lying("input")
@_alone_or_by_name
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Tensor:
    """The positions, int64 and of the input's shape, that put a dimension in order.

    Parameters
    ----------
    dim : int
    descending : bool
        The largest first.
    stable : bool, optional
        Equal elements stay in order in any case. Beside it, the others are given by their names.

    Raises
    ------
    RuntimeError
        For complex tensors.
    IndexError
        For a ``dim`` that there is not.
    TypeError
        For ``dim`` or ``descending`` by position beside ``stable``.
    """
    if input.dtype.is_complex:
        raise RuntimeError("Sort does not support complex dtypes; sort its .abs() or .real")
    dim = normalize_dim(dim, input.ndim)
    xp, array, in_order = xp_of(input), input.detach().array, backend(input.device).argsort
    if not input.ndim:
        return index_tensor(input, xp.zeros((), "int64"))
    if descending:  # stable in descending order too: sort backwards, read backwards
        n = array.shape[dim]
        order = n - 1 - xp.flip(in_order(xp.flip(array, dim), dim), dim)
    else:
        order = in_order(array, dim)
    return index_tensor(input, order)


@batching(argsort)
def _argsort_batched(
    level: Batch, f: Any, x: Tensor, dim: int = -1, descending: bool = False, **options: Any
) -> Any:
    if not x.ndim:
        return NotImplemented
    dim = normalize_dim(dim, x.ndim) + 1
    return level.wrap(f(level.value(x), dim=dim, descending=descending, **options))


@op
@takes_out
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The ``k`` largest (or smallest) along a dimension, and where they are (int64).

    Both are of the input's shape, but for ``k`` in place of the dimension's extent.

    Parameters
    ----------
    k : int
    dim : int
    largest : bool
    sorted : bool
        They are put in order in any case.

    Raises
    ------
    TypeError
        For a ``k`` that is not an integer.
    RuntimeError
        For one that is negative or above the dimension's size, and for bool.
    IndexError
        For a ``dim`` that there is not.
    """
    dim = normalize_dim(dim, input.ndim)
    if not hasattr(k, "__index__"):
        raise TypeError(f"topk(): argument 'k' (position 1) must be int, not {type(k).__name__}")
    if not 0 <= k <= (input.shape[dim] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    if input.dtype is dt.bool:
        raise RuntimeError("topk does not support bool dtypes; convert it with .int()")
    if not input.ndim:
        return VALUES["topk"](input.clone(), argsort(input, dim))
    selected = _leading(input, k, dim, largest)
    where = (
        argsort(input, dim, largest).narrow(dim, 0, k).contiguous()
        if selected is None
        else selected
    )
    return VALUES["topk"](gathered("TopkBackward0", input, dim, where), where)


@batching(topk)
def _topk_batched(
    level: Batch,
    f: Any,
    x: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap_all(f(level.value(x), k, normalize_dim(dim, x.ndim) + 1, largest, sorted))


def _leading(input: Tensor, k: int, dim: int, largest: bool) -> Tensor | None:
    """Where the k largest or smallest are, in order, without sorting the others.

    None where sorting is as good, on a GPU, and where there are NaNs.
    """
    array = input.detach().array
    if input.device.type != "cpu" or input.dtype.is_complex or not 0 < 4 * k <= array.shape[dim]:
        return None
    if array.size < SORTED:
        return None
    if input.dtype.category == 2:
        array = array.astype(input.dtype.compute.numpy, copy=False)
    where = leading(array, dim, k, largest)
    return None if where is None else index_tensor(input, where)


FUNCTIONS = (sort, argsort, topk)
METHODS = tuple([guarded(op, method=True) for op in FUNCTIONS])
