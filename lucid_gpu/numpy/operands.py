"""What is passed to NumPy's functions, as tensors on one device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend_of_array
from lucid_gpu.dtypes import element_type
from lucid_gpu.ops.creation import tensor
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["alike", "as_tensor", "as_tensors", "element_type", "first_tensor", "inexact"]
__all__ += ["on_memory_of"]


def first_tensor(values: Iterable[Any]) -> Tensor | None:
    """The first tensor among arguments and in the lists among them."""
    return next(_tensors(values), None)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


def as_tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """A tensor of what NumPy takes for an array; arrays are copied, for others may write them.

    Parameters
    ----------
    value : Tensor, array, number, or nested lists of them
    like : Tensor, optional
        On whose device numbers, lists and arrays of the host are put.

    Raises
    ------
    TypeError
        For arrays of objects, texts and records.
    """
    if isinstance(value, Tensor):
        return value
    if backend_of_array(value) is not None and not isinstance(value, np.generic):
        copied = on_memory_of(value.copy())
        return copied if like is None or copied.is_cuda else copied.to(like.device)
    if isinstance(value, (list, tuple)) and first_tensor(value) is not None:
        from lucid_gpu.ops.shape import stack

        return stack(alike(*value, like=like))
    array = np.asarray(value)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)  # NumPy takes both orders
    return tensor(array, device=like.device if like is not None else None)


def on_memory_of(array: Any) -> Tensor:
    """A tensor on the memory of an array that nobody else writes as long as it lives."""
    library = backend_of_array(array)
    assert library is not None
    if isinstance(array, np.generic):
        array = np.asarray(array)
    d = dt.from_numpy_dtype(array.dtype)
    if array.dtype != d.numpy:  # foreign byte order
        array = array.astype(d.numpy)
    return from_array(array, d, library.device_of(array))


def as_tensors(values: Iterable[Any], like: Tensor | None = None) -> list[Tensor]:
    """Each as a tensor, numbers and lists on the device of the tensors."""
    values = list(values)
    first = first_tensor(values)
    like = like if first is None else first
    return [as_tensor(value, like) for value in values]


def alike(*operands: Any, like: Tensor | None = None) -> list[Tensor]:
    """Operands in the type that NumPy gives to all together."""
    tensors = as_tensors(operands, like)
    if len({t.dtype for t in tensors}) < 2:
        return tensors
    d = element_type(np.result_type(*[t.dtype.numpy for t in tensors]))
    return [t.to(d) for t in tensors]


def inexact(t: Tensor) -> Tensor:
    """Whole numbers and truth values as float64, as NumPy's means and roots take them."""
    return t if t.dtype.category >= 2 else t.to(dt.float64)
