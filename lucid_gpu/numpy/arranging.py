"""Elements moved, repeated and laid out anew, under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor, as_tensors
from lucid_gpu.numpy.shapes import axes_of, axis_of, broadcast_to
from lucid_gpu.ops.array_methods import laid_out
from lucid_gpu.ops.creation import empty, ones, zeros
from lucid_gpu.ops.rolled import rolled
from lucid_gpu.tensor import Tensor

__all__ = ["diag", "diagflat", "diagonal", "empty_like", "flip", "fliplr", "flipud"]
__all__ += ["full_like", "ones_like", "pad", "repeat", "resize", "roll", "rot90", "tile"]
__all__ += ["tril", "triu", "zeros_like"]


# --- elements moved and repeated -----------------------------------------------------------------


def flip(m: Any, axis: Any = None) -> Tensor:
    """`numpy.flip`."""
    m = as_tensor(m)
    return m.flip(tuple(range(m.ndim)) if axis is None else axes_of(axis, m.ndim))


def flipud(m: Any) -> Tensor:
    """`numpy.flipud`."""
    return flip(m, 0)


def fliplr(m: Any) -> Tensor:
    """`numpy.fliplr`."""
    return flip(m, 1)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Tensor:
    """`numpy.rot90`."""
    m = as_tensor(m)
    return m.rot90(k, list(axes_of(axes, m.ndim)))


def roll(a: Any, shift: Any, axis: Any = None) -> Tensor:
    """`numpy.roll`."""
    a = a if type(a) is Tensor else as_tensor(a)
    if axis is None:
        return a.reshape(-1).roll(int(np.sum(shift))).reshape(a.shape)
    if isinstance(shift, int) and isinstance(axis, int):
        return rolled(a, (shift,), (axis_of(axis, len(a._expr.shape)),))
    shifts, axes = np.broadcast_arrays(shift, axis)
    total: dict[int, int] = {}  # shifts of one axis add up
    for one, along in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        along = axis_of(along, a.ndim)
        total[along] = total.get(along, 0) + one
    return rolled(a, tuple(total.values()), tuple(total))


def tile(A: Any, reps: Any) -> Tensor:
    """`numpy.tile`."""
    return as_tensor(A).tile((reps,) if isinstance(reps, (int, np.integer)) else tuple(reps))


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """`numpy.repeat`."""
    a = as_tensor(a)
    a, axis = (a.reshape(-1), 0) if axis is None or not a.ndim else (a, axis_of(axis, a.ndim))
    order = np.repeat(np.arange(a.shape[axis]), repeats)
    return a.index_select(axis, as_tensor(order, a))


def resize(a: Any, new_shape: Any) -> Tensor:
    """`numpy.resize`: repeated until the shape is full."""
    flat = as_tensor(a).reshape(-1)
    if not flat.numel():
        return flat.new_zeros(new_shape)
    order = np.resize(np.arange(flat.shape[0]), new_shape)
    return flat[as_tensor(order, flat)]


def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Tensor:
    """`numpy.pad`, in the modes that repeat elements or one number.

    Raises
    ------
    ValueError
        For the modes that NumPy computes: ``linear_ramp``, ``mean``, ``median``, ``maximum`` ...
    """
    array = as_tensor(array)
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        raise ValueError(
            "numpy.pad of tensors takes mode 'constant', 'edge', 'reflect', 'symmetric' or "
            f"'wrap', got {mode!r}"
        )
    flat, numbers = array.reshape(-1), np.arange(array.numel()).reshape(tuple(array.shape))
    if mode != "constant":
        indices: Any = np.pad(numbers, pad_width, mode, **kwargs)  # type: ignore[call-overload]
        return flat[as_tensor(indices, array)]
    fill = kwargs.pop("constant_values", 0)
    indices = np.pad(numbers, pad_width, constant_values=-1, **kwargs)
    around = np.pad(np.zeros(tuple(array.shape)), pad_width, constant_values=fill)
    border = as_tensor(around, array).to(array.dtype)
    if not numbers.size:
        return border
    inside = flat[as_tensor(np.maximum(indices, 0), array)]
    return inside.where(as_tensor(indices >= 0, array), border)


# --- diagonals and triangles ---------------------------------------------------------------------


def diag(v: Any, k: int = 0) -> Tensor:
    """`numpy.diag`."""
    v = as_tensor(v)
    if v.ndim not in (1, 2):
        raise ValueError("Input must be 1- or 2-d.")
    return v.diag(k)


def diagflat(v: Any, k: int = 0) -> Tensor:
    """`numpy.diagflat`."""
    return as_tensor(v).reshape(-1).diag(k)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """`numpy.diagonal`."""
    a = as_tensor(a)
    if a.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    axes = axis_of(axis1, a.ndim), axis_of(axis2, a.ndim)
    if axes[0] == axes[1]:
        raise ValueError("axis1 and axis2 cannot be the same")
    return a.diagonal(offset, *axes)


def tril(m: Any, k: int = 0) -> Tensor:
    """`numpy.tril`."""
    return _matrix(m).tril(k)


def triu(m: Any, k: int = 0) -> Tensor:
    """`numpy.triu`."""
    return _matrix(m).triu(k)


def _matrix(m: Any) -> Tensor:
    """Matrices; of a vector one whose every row it is."""
    m = as_tensor(m)
    if m.ndim == 0:
        raise TypeError("tril and triu take at least one dimension, got none")
    return m.expand((m.shape[0], m.shape[0])) if m.ndim == 1 else m


# --- made like another ---------------------------------------------------------------------------


def _like(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def function(
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Tensor:
        a = as_tensor(a)
        d = a.dtype if dtype is None else element_type(dtype)
        sizes = tuple(a.shape) if shape is None else shape
        sizes = (sizes,) if isinstance(sizes, (int, np.integer)) else tuple(sizes)
        return laid_out(make(sizes, dtype=d, device=a.device if device is None else device), order)

    return named(function, f"{make.__name__}_like")


zeros_like, ones_like, empty_like = map(_like, (zeros, ones, empty))


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tensor:
    """`numpy.full_like`; the gradient of a tensor ``fill_value`` passes to it."""
    a, value = as_tensors((a, fill_value))
    made = empty_like(a, dtype, order, subok, shape, device=device)
    value = value.to(device=made.device, dtype=made.dtype)
    return laid_out(broadcast_to(value, tuple(made.shape)).clone(), "C" if order == "K" else order)
