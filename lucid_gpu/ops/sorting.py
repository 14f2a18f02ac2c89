"""`sort`, `argsort` and `topk`; what comes of an order is in `ops.order`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend
from lucid_gpu.devices.ordering import leading
from lucid_gpu.ops.arguments import guarded, takes_out
from lucid_gpu.ops.gather import _gathered
from lucid_gpu.ops.index_primitives import index_tensor
from lucid_gpu.ops.memory_formats import lying
from lucid_gpu.ops.named_results import VALUES
from lucid_gpu.ops.reductions import along_dim, normalize_dim
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching
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
    where = _argsort(input, dim, descending)
    return VALUES["sort"](_gathered("SortBackward0", input, dim, where, True, None, None), where)


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
    return _argsort(input, dim, descending)


@op
def _argsort(input: Tensor, dim: int, descending: bool, count: int | None = None) -> Tensor:
    """The first positions, or all, of an order."""
    value = input._expr
    program = value.program
    if program.dtype.category == 3:
        raise RuntimeError("Sort does not support complex dtypes; sort its .abs() or .real")
    dim = normalize_dim(dim, len(value.shape))
    there, array = backend(program.device), input.array
    if not value.shape:
        return index_tensor(input, there.xp.zeros((), "int64"))
    whole = (slice(None),) * dim
    if descending:  # stable in descending order too: sort backwards, read backwards
        backwards = (*whole, slice(None, None, -1))
        order = array.shape[dim] - 1 - there.argsort(array[backwards], dim)[backwards]
    else:
        order = there.argsort(array, dim)
    if count is not None:
        first = (*whole, slice(count))
        order = order[first]
    return index_tensor(input, order)


batching(argsort, _argsort)(along_dim)


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
    shape = input._expr.shape
    dim = normalize_dim(dim, len(shape))
    if not hasattr(k, "__index__"):
        raise TypeError(f"topk(): argument 'k' (position 1) must be int, not {type(k).__name__}")
    if not 0 <= k <= (shape[dim] if shape else 1):
        raise RuntimeError("selected index k out of range")
    if input._expr.program.dtype is dt.bool:
        raise RuntimeError("topk does not support bool dtypes; convert it with .int()")
    if not shape:
        return VALUES["topk"](input.clone(), _argsort(input, dim, largest))
    where = _leading(input, k, dim, largest)
    if where is None:
        where = _argsort(input, dim, largest, k)
    return VALUES["topk"](_gathered("TopkBackward0", input, dim, where, True, None, None), where)


batching(topk)(along_dim)


def _leading(input: Tensor, k: int, dim: int, largest: bool) -> Tensor | None:
    """Where the k largest or smallest are, in order, without sorting the others.

    None where sorting is as good, on a GPU, and where there are NaNs.
    """
    array = input.array
    if array.size < SORTED or not 0 < 4 * k <= array.shape[dim]:
        return None
    program = input._expr.program
    d = program.dtype
    if program.device.type != "cpu" or d.category == 3:
        return None
    if d.category == 2:
        array = array.astype(d.compute.numpy, copy=False)
    where = leading(array, dim, k, largest)
    return None if where is None else index_tensor(input, where)


FUNCTIONS = (sort, argsort, topk)
METHODS = tuple([guarded(op, method=True) for op in FUNCTIONS])
