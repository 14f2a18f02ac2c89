"""Functions applied along axes, positions and types asked for, under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.func.trees import tree_map
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors
from lucid_gpu.numpy.selection import sort
from lucid_gpu.numpy.shapes import axis_of, expand_dims, moveaxis
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = ["apply_along_axis", "apply_over_axes", "can_cast", "common_type", "diag_indices_from"]
__all__ += ["einsum_path", "i0", "ix_", "result_type", "sort_complex", "tril_indices_from"]
__all__ += ["trim_zeros", "triu_indices_from"]


def apply_along_axis(
    func1d: Callable[..., Any], axis: Any, arr: Any, *args: Any, **kwargs: Any
) -> Tensor:
    """`numpy.apply_along_axis`: of each vector along an axis, one call after the other."""
    arr = as_tensor(arr)
    axis = axis_of(axis, arr.ndim)
    last = moveaxis(arr, axis, -1)
    outer = tuple(last.shape)[:-1]
    rows = last.reshape((int(np.prod(outer, dtype=int)), last.shape[-1])).unbind(0)
    if not rows:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    stacked = stack(alike(*as_tensors([func1d(row, *args, **kwargs) for row in rows], arr)))
    inner = tuple(stacked.shape)[1:]
    inner_axes = range(len(outer), len(outer) + len(inner))
    return moveaxis(stacked.reshape(outer + inner), inner_axes, range(axis, axis + len(inner)))


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> Any:
    """`numpy.apply_over_axes`: a reduction over one axis after the other."""
    reduced = a = as_tensor(a)
    for axis in np.atleast_1d(axes).tolist():
        axis = axis_of(axis, a.ndim)
        result = func(reduced, axis)
        reduced = result if result.ndim == reduced.ndim else expand_dims(result, axis)
        if reduced.ndim != a.ndim:
            raise ValueError("function is not returning an array of the correct shape")
    return reduced


# --- positions -----------------------------------------------------------------------------------


def ix_(*args: Any) -> tuple[Tensor, ...]:
    """`numpy.ix_`."""
    indices = []
    for k, part in enumerate(as_tensors(args)):
        if part.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        part = part.nonzero().reshape(-1) if part.dtype == dt.bool else part
        part = part if part.numel() else part.to(dt.int64)
        indices.append(part.reshape([-1 if i == k else 1 for i in range(len(args))]))
    return tuple(indices)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
    """`numpy.tril_indices_from`."""
    return _of_matrix(np.tril_indices_from, arr, k)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
    """`numpy.triu_indices_from`."""
    return _of_matrix(np.triu_indices_from, arr, k)


def diag_indices_from(arr: Any) -> tuple[Tensor, ...]:
    """`numpy.diag_indices_from`."""
    return _of_matrix(np.diag_indices_from, arr)


def _of_matrix(function: Callable[..., Any], arr: Any, *args: Any) -> tuple[Tensor, ...]:
    shape = np.broadcast_to(np.empty(()), tuple(arr.shape))  # takes no memory
    return tuple([as_tensor(part, arr) for part in function(shape, *args)])


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Tensor:
    """`numpy.trim_zeros`: without the zeros at the front (``"f"``) and back (``"b"``)."""
    if not set(trim.lower()) <= {"f", "b"}:
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    filt = as_tensor(filt)
    axes = (
        range(filt.ndim)
        if axis is None
        else np.lib.array_utils.normalize_axis_tuple(axis, filt.ndim)
    )
    set_ = filt.detach() != 0
    for along in axes:
        others = tuple([k for k in range(filt.ndim) if k != along])
        nonzero = np.flatnonzero((set_.any(others) if others else set_).cpu().numpy())
        n = filt.shape[along]
        first, last = (int(nonzero[0]), int(nonzero[-1]) + 1) if nonzero.size else (n, n)
        first, last = first if "f" in trim.lower() else 0, last if "b" in trim.lower() else n
        if not nonzero.size and "f" not in trim.lower():
            last = 0
        filt = filt.narrow(along, first, last - first)
    return filt


# --- of numbers and types ------------------------------------------------------------------------


def sort_complex(a: Any) -> Tensor:
    """`numpy.sort_complex`."""
    a = sort(a)
    if a.dtype.category == 3:
        return a
    return a.to(dt.complex64 if a.dtype in (dt.int8, dt.int16, dt.uint8) else dt.complex128)


def i0(x: Any) -> Tensor:
    """`numpy.i0`, element by element."""
    x = as_tensor(x)
    bessel: Tensor = (x if x.dtype.category >= 2 else x.to(dt.float64)).i0()
    return bessel


def _typed(value: Any) -> Any:
    return value.dtype.numpy if isinstance(value, Tensor) else value


def result_type(*arrays_and_dtypes: Any) -> Any:
    """`numpy.result_type`."""
    return np.result_type(*map(_typed, arrays_and_dtypes))


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """`numpy.can_cast`."""
    return np.can_cast(_typed(from_), _typed(to), casting)


def common_type(*arrays: Any) -> Any:
    """`numpy.common_type`."""
    return np.common_type(*[np.empty(0, a.dtype.numpy) for a in as_tensors(arrays)])


def einsum_path(*operands: Any, optimize: Any = "greedy") -> Any:
    """`numpy.einsum_path`."""

    def hollow(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return np.broadcast_to(np.empty((), value.dtype.numpy), tuple(value.shape))

    return np.einsum_path(*tree_map(hollow, list(operands)), optimize=optimize)
