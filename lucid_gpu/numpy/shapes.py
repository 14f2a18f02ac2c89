"""Shapes and axes, under NumPy's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu.devices import resolve
from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy.operands import as_tensor, as_tensors
from lucid_gpu.ops.array_methods import laid_out
from lucid_gpu.tensor import Tensor

__all__ = ["astype", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays"]
__all__ += ["broadcast_to", "copy", "expand_dims", "matrix_transpose", "meshgrid", "moveaxis"]
__all__ += ["ndim", "permute_dims", "ravel", "reshape", "rollaxis", "shape", "size", "squeeze"]
__all__ += ["swapaxes", "transpose"]


# --- questions -----------------------------------------------------------------------------------


def shape(a: Any) -> tuple[int, ...]:
    """`numpy.shape`."""
    return tuple(as_tensor(a).shape)


def ndim(a: Any) -> int:
    """`numpy.ndim`."""
    return as_tensor(a).ndim


def size(a: Any, axis: Any = None) -> int:
    """`numpy.size`."""
    a = as_tensor(a)
    axes = range(a.ndim) if axis is None else np.atleast_1d(axis)
    return math.prod([a.shape[i] for i in axes])


# --- one tensor in another shape -----------------------------------------------------------------


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from the front.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    """
    normalized: int = _normalize(axis, ndim)
    return normalized


_normalize = np.lib.array_utils.normalize_axis_index


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, as `axis_of` counts one."""
    normalized: tuple[int, ...] = np.lib.array_utils.normalize_axis_tuple(axis, ndim)
    return normalized


def reshape(a: Any, shape: Any = None, order: str = "C", *, copy: bool | None = None) -> Tensor:
    """`numpy.reshape`; ``order="F"`` counts the first axis fastest."""
    a = as_tensor(a)
    sizes = [shape] if isinstance(shape, (int, np.integer)) else list(shape)
    if order not in ("C", "F", "A"):
        raise ValueError(f"order must be one of 'C', 'F', or 'A' (got {order!r})")
    if order == "A":
        order = "F" if not a.is_contiguous() and _turned(a).is_contiguous() else "C"
    source, sizes = (_turned(a), sizes[::-1]) if order == "F" else (a, sizes)
    if copy is False:
        try:
            reshaped = source.view(sizes)
        except RuntimeError as error:
            raise ValueError(f"reshape(copy=False): {error}") from None
    else:
        reshaped = source.reshape(sizes)
    reshaped = _turned(reshaped) if order == "F" else reshaped
    return reshaped.clone() if copy else reshaped


def _turned(a: Tensor) -> Tensor:
    """The axes in the opposite order."""
    return a.permute(tuple(range(a.ndim))[::-1])


def ravel(a: Any, order: str = "C") -> Tensor:
    """`numpy.ravel`; ``order="K"`` takes the elements as they lie in memory."""
    a = as_tensor(a)
    if order == "K":
        steps = a.stride()
        a, order = a.permute(sorted(range(a.ndim), key=lambda k: -steps[k])), "C"
    return reshape(a, -1, order)


def transpose(a: Any, axes: Any = None) -> Tensor:
    """`numpy.transpose`: the axes in another order, by default the opposite one."""
    a = as_tensor(a)
    if axes is None:
        return _turned(a)
    if len(axes) != a.ndim:
        raise ValueError("axes don't match array")
    return a.permute(axes_of(axes, a.ndim))


permute_dims = transpose


def matrix_transpose(x: Any, /) -> Tensor:
    """`numpy.matrix_transpose`: the last two axes exchanged."""
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Tensor:
    """`numpy.swapaxes`."""
    a = as_tensor(a)
    return a.transpose(axis_of(axis1, a.ndim), axis_of(axis2, a.ndim))


def moveaxis(a: Any, source: Any, destination: Any) -> Tensor:
    """`numpy.moveaxis`."""
    a = as_tensor(a)
    sources, destinations = axes_of(source, a.ndim), axes_of(destination, a.ndim)
    if len(sources) != len(destinations):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements"
        )
    order = [k for k in range(a.ndim) if k not in sources]
    for position, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(position, axis)
    return a.permute(tuple(order))


def rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    """`numpy.rollaxis`."""
    a = as_tensor(a)
    axis = axis_of(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    if not 0 <= start <= a.ndim:
        raise np.exceptions.AxisError(f"start {start} is out of bounds for {a.ndim} axes")
    return moveaxis(a, axis, start - (axis < start))


def squeeze(a: Any, axis: Any = None) -> Tensor:
    """`numpy.squeeze`."""
    a = as_tensor(a)
    if axis is None:
        return a.squeeze()
    if a.ndim == 0 and axis in (0, -1):
        return a
    axes = axes_of(axis, a.ndim)
    if any(a.shape[k] != 1 for k in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return a.squeeze(axes)


def expand_dims(a: Any, axis: Any) -> Tensor:
    """`numpy.expand_dims`."""
    a = as_tensor(a)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    new_axes = axes_of(axes, a.ndim + len(axes))
    sizes = iter(a.shape)
    return a.reshape([1 if k in new_axes else next(sizes) for k in range(a.ndim + len(axes))])


def atleast_1d(*arys: Any) -> Any:
    """`numpy.atleast_1d`."""
    return _each(lambda a: a.reshape(1) if a.ndim == 0 else a, arys)


def atleast_2d(*arys: Any) -> Any:
    """`numpy.atleast_2d`."""
    return _each(
        lambda a: a.reshape((1,) * (2 - a.ndim) + tuple(a.shape)) if a.ndim < 2 else a, arys
    )


def atleast_3d(*arys: Any) -> Any:
    """`numpy.atleast_3d`."""

    def wide(a: Tensor) -> Tensor:
        if a.ndim > 2:
            return a
        return atleast_2d(a).unsqueeze(-1) if a.ndim else a.reshape(1, 1, 1)

    return _each(wide, arys)


def _each(function: Callable[[Tensor], Tensor], arys: Sequence[Any]) -> Any:
    results = tuple([function(a) for a in as_tensors(arys)])
    return results if len(arys) > 1 else results[0]


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tensor:
    """`numpy.broadcast_to`."""
    array = as_tensor(array)
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    np.broadcast_shapes(tuple(array.shape), sizes)
    if len(sizes) < array.ndim:
        raise ValueError("input operand has more dimensions than allowed by the axis remapping")
    return array.expand(sizes)


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tensor, ...]:
    """`numpy.broadcast_arrays`; beside arrays of objects or texts tensors are arrays, too."""
    if any(map(_holds_no_numbers, args)):  # as matplotlib's bars
        arrays: Any = np.broadcast_arrays(
            *[np.asarray(a) if isinstance(a, Tensor) else a for a in args], subok=subok
        )
        return arrays
    tensors = as_tensors(args)
    sizes = np.broadcast_shapes(*[tuple(t.shape) for t in tensors])
    return tuple([t.expand(sizes) for t in tensors])


def _holds_no_numbers(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_no_numbers, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "OSUT"
    return value is None or isinstance(value, str)


def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Tensor, ...]:
    """`numpy.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    vectors = [t.reshape(-1) for t in as_tensors(xi)]
    n = len(vectors)
    grids = [t.reshape([-1 if i == k else 1 for i in range(n)]) for k, t in enumerate(vectors)]
    if indexing == "xy" and n > 1:
        grids = [g.transpose(0, 1) for g in grids]
    if not sparse:
        grids = list(broadcast_arrays(*grids))
        grids = [g.clone() for g in grids] if copy else grids
    return tuple(grids)


def copy(a: Any, order: str = "K", subok: bool = False) -> Tensor:
    """`numpy.copy`."""
    return laid_out(as_tensor(a).clone(), order)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """`numpy.astype`."""
    x = as_tensor(x)
    converted = x.to(
        device=x.device if device is None else resolve(device), dtype=element_type(dtype)
    )
    return converted.clone() if copy and converted is x else converted
