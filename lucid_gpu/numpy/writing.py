"""Writes into tensors, under NumPy's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.numpy.operands import as_tensor, as_tensors
from lucid_gpu.numpy.refusals import lost_in_array
from lucid_gpu.numpy.selection import along, within
from lucid_gpu.numpy.shapes import axis_of, broadcast_to
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tensor import Tensor

__all__ = ["copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"]


def _writes(function: Callable[..., None]) -> Callable[..., None]:
    """Into a tensor by ``function``; into an array by NumPy, where that loses no gradient."""

    @functools.wraps(function)
    def wrapper(target: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(target, Tensor):
            function(target, *args, **kwargs)
            return
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        if is_grad_enabled() and any(t.requires_grad for t in tensors):
            raise lost_in_array(f"numpy.{function.__name__}")
        args = tuple([a.numpy() if isinstance(a, Tensor) else a for a in args])
        kwargs = {k: a.numpy() if isinstance(a, Tensor) else a for k, a in kwargs.items()}
        getattr(np, function.__name__)(target, *args, **kwargs)

    return wrapper


def _mask(mask: Any, a: Tensor) -> Tensor:
    return as_tensor(mask, a).to(dt.bool)


def _safely(values: Any, a: Tensor) -> Tensor:
    """Values in the type of the tensor that is written, which must hold all of theirs."""
    number = isinstance(values, (bool, int, float, complex))
    values = as_tensor(values, a)
    if not number and not np.can_cast(values.dtype.numpy, a.dtype.numpy):
        raise TypeError(
            f"Cannot cast array data from {values.dtype.numpy!r} to {a.dtype.numpy!r} according to "
            "the rule 'safe'"
        )
    return values.to(a.dtype)


@_writes
def copyto(dst: Tensor, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """`numpy.copyto`."""
    number = isinstance(src, (bool, int, float, complex))
    src = as_tensor(src, dst)
    if not number and not np.can_cast(src.dtype.numpy, dst.dtype.numpy, casting):
        raise TypeError(
            f"Cannot cast array data from {src.dtype.numpy!r} to {dst.dtype.numpy!r} according to "
            f"the rule {casting!r}"
        )
    src = broadcast_to(src.to(dst.dtype), tuple(dst.shape))
    dst.copy_(src if where is True else src.where(_mask(where, dst), dst))


@_writes
def putmask(a: Tensor, mask: Any, values: Any) -> None:
    """`numpy.putmask`: values that are fewer than the elements begin anew."""
    mask, values = _mask(mask, a), _safely(values, a)
    if mask.numel() != a.numel():
        raise ValueError("putmask: mask and data must be the same size")
    if values.numel():
        cycled: Any = np.resize(values, tuple(a.shape))
        a.copy_(cycled.where(mask.reshape(a.shape), a))


@_writes
def place(arr: Tensor, mask: Any, vals: Any) -> None:
    """`numpy.place`: the first of the values where the mask first holds, and so on."""
    mask, vals = _mask(mask, arr).reshape(-1), _safely(vals, arr).reshape(-1)
    if mask.numel() != arr.numel():
        raise ValueError("place: mask and data must be the same size")
    if not vals.numel():
        if bool(mask.any()):
            raise ValueError("Cannot insert from an empty array!")
        return
    turns = (mask.to(dt.int64).cumsum(0) - 1).clamp(min=0) % vals.numel()
    arr.copy_(vals[turns].where(mask, arr.reshape(-1)).reshape(arr.shape))


@_writes
def put(a: Tensor, ind: Any, v: Any, mode: str = "raise") -> None:
    """`numpy.put`: at positions of the flattened tensor; the last of several at one place stays."""
    ind, v = as_tensors((ind, v), a)
    if not ind.numel() or not v.numel():
        return
    if not a.numel():
        raise IndexError("cannot replace elements of an empty array")
    positions = within(ind.reshape(-1).to(dt.int64), a.numel(), mode)
    values: Any = np.resize(v.to(a.dtype), tuple(positions.shape))
    a.copy_(_scattered(a.reshape(-1), 0, positions, values).reshape(a.shape))


@_writes
def put_along_axis(arr: Tensor, indices: Any, values: Any, axis: int | None) -> None:
    """`numpy.put_along_axis`."""
    indices, values = as_tensors((indices, values), arr)
    target, axis = (arr.view(-1), 0) if axis is None else (arr, axis_of(axis, arr.ndim))
    positions = within(indices.to(dt.int64), target.shape[axis], "raise")
    sizes = np.broadcast_shapes(along(target, axis), along(positions, axis))
    positions = positions.expand(
        [positions.shape[k] if k == axis else n for k, n in enumerate(sizes)]
    )
    scattered = _scattered(target, axis, positions, values.to(arr.dtype).expand(positions.shape))
    target.copy_(scattered)


def _scattered(a: Tensor, axis: int, positions: Tensor, values: Tensor) -> Tensor:
    """Values at places along an axis; of several at one place the last, which has the gradient."""
    if not positions.numel() or not a.numel():
        return a
    turns = as_tensor(np.arange(positions.shape[axis]), a)
    turns = turns.reshape([-1 if k == axis else 1 for k in range(a.ndim)]).expand(positions.shape)
    last = as_tensor(-1, a).expand(a.shape).clone().scatter_reduce(axis, positions, turns, "amax")
    return values.gather(axis, last.clamp(min=0)).where(last >= 0, a)


@_writes
def fill_diagonal(a: Tensor, val: Any, wrap: bool = False) -> None:
    """`numpy.fill_diagonal`."""
    marks = np.zeros(tuple(a.shape), bool)
    np.fill_diagonal(marks, True, wrap)
    put(a, np.flatnonzero(marks), val)
