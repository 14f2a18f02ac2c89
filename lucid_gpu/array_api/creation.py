"""Tensors made from numbers, sequences, arrays and shapes."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.devices import backend_of_array, resolve
from lucid_gpu.numpy import arranging, sequences, shapes
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor as stacked
from lucid_gpu.numpy.operands import first_tensor
from lucid_gpu.ops import creation as ops
from lucid_gpu.ops import dlpack
from lucid_gpu.tensor import Tensor

__all__ = ["arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like"]
__all__ += ["linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like"]

DOC = "``{}`` of the standard: a tensor of that shape."


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: builtins.bool | None = None
) -> Tensor:
    """A tensor of an array, a number or nested sequences, of their shape; gradients flow.

    Parameters
    ----------
    copy : bool, optional
        True copies, False refuses to; None shares the memory of arrays where it can.

    Raises
    ------
    ValueError
        If ``copy`` is False and a copy is needed.
    """
    converted = _taken(obj, dtype, device)
    if dtype is not None or device is not None:
        converted = converted.to(
            device=resolve(device or converted.device), dtype=dtype or converted.dtype
        )
    if copy is False and not (converted is obj or _shares(converted, obj)):
        raise ValueError(f"asarray(copy=False) of a {type(obj).__name__} needs a copy")
    return (
        converted.clone() if copy and (converted is obj or _shares(converted, obj)) else converted
    )


def _taken(obj: Any, dtype: Any, device: Any) -> Tensor:
    if isinstance(obj, (list, tuple)) and first_tensor(obj) is not None:
        return stacked(obj)
    if isinstance(obj, (memoryview, bytearray)):
        obj = np.asarray(obj)
    return ops.as_tensor(obj) if _is_array(obj) else ops.as_tensor(obj, dtype, device)


def _is_array(obj: Any) -> builtins.bool:
    return isinstance(obj, Tensor) or backend_of_array(obj) is not None


def _shares(tensor: Tensor, obj: Any) -> builtins.bool:
    """Whether a tensor lies in an array's memory."""
    if isinstance(obj, (memoryview, bytearray)):
        obj = np.asarray(obj)
    if isinstance(obj, (Tensor, np.generic)) or backend_of_array(obj) is None:
        return False
    array = tensor.detach().array
    return type(array) is type(obj) and _same(array, obj)


def _same(a: Any, b: Any) -> builtins.bool:
    pointer = "__array_interface__" if isinstance(a, np.ndarray) else "__cuda_array_interface__"
    here, there = getattr(a, pointer)["data"][0], getattr(b, pointer)["data"][0]
    return builtins.bool(here == there)


def _sizes(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(int, shape))


def _of_shape(name: str) -> Callable[..., Tensor]:
    make = getattr(ops, name)

    def function(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        created: Tensor = make(_sizes(shape), dtype=dtype, device=device)
        return created

    return named(function, name, DOC)


def _like(name: str) -> Callable[..., Tensor]:
    make = getattr(ops, name)

    def function(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
        created: Tensor = make(tuple(x.shape), dtype=dtype or x.dtype, device=device or x.device)
        return created

    return named(function, f"{name}_like", DOC)


empty, ones, zeros = map(_of_shape, ("empty", "ones", "zeros"))
empty_like, ones_like, zeros_like = map(_like, ("empty", "ones", "zeros"))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All elements ``fill_value``."""
    return ops.full(_sizes(shape), fill_value, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All elements ``fill_value``, in the shape of ``x``."""
    return full(tuple(x.shape), fill_value, dtype=dtype or x.dtype, device=device or x.device)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """A vector of numbers from ``start`` up to ``stop``, none where the step leads away from it."""
    start, stop = (0, start) if stop is None else (start, stop)
    start, stop, step = map(_number, (start, stop, step))
    if dtype is None and any(isinstance(v, float) for v in (start, stop, step)):
        dtype = ops.get_default_dtype()
    if (stop - start) * step <= 0:
        return empty(0, dtype=dtype or ops.dt.int64, device=device)
    return ops.arange(start, stop, step, dtype=dtype, device=device)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, (Tensor, np.generic)) else value


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: builtins.bool = True,
) -> Tensor:
    """A vector of ``num`` numbers, evenly spaced; without ``stop`` where ``endpoint`` is false.

    Between tensors without dimensions it has their gradients.
    """
    if first_tensor((start, stop)) is not None:
        samples: Tensor = sequences.linspace(start, stop, num, endpoint, dtype=dtype)
        return samples if device is None else samples.to(resolve(device))
    count = num if endpoint else num + 1
    complex_ends = isinstance(start, complex) or isinstance(stop, complex)
    if not complex_ends:
        return ops.linspace(start, stop, count, dtype=dtype, device=device)[:num]
    d = dtype or ops.get_default_dtype().to_complex()
    share = ops.linspace(0, 1, count, dtype=d.to_real(), device=device)[:num]
    return start + share.to(d) * (stop - start)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Ones on the ``k``-th diagonal of a matrix of zeros."""
    rows = ops.arange(n_rows, device=device).unsqueeze(1)
    columns = ops.arange(n_rows if n_cols is None else n_cols, device=device)
    return (columns - rows == k).to(dtype or ops.get_default_dtype())


def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor on another library's memory, of its shape."""
    return dlpack.from_dlpack(x, device=device, copy=copy)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of the grid that vectors span: a tensor of the grid's shape for each of them."""
    return list(shapes.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangles of matrices.

    ValueError for arrays of fewer than two dimensions.
    """
    return arranging.tril(_matrix("tril", x), k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangles of matrices.

    ValueError for arrays of fewer than two dimensions.
    """
    return arranging.triu(_matrix("triu", x), k)


def _matrix(name: str, x: Tensor) -> Tensor:
    if x.ndim < 2:
        raise ValueError(f"{name} takes an array of at least two dimensions, got {x.ndim}")
    return x
