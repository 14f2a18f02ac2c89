"""From a list of samples to one batch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid_gpu.device import CPU
from lucid_gpu.devices import backend
from lucid_gpu.dtypes import float64, from_numpy_dtype, promote_types
from lucid_gpu.ops.creation import as_tensor, tensor
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["default_collate", "default_convert"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples joined along a new first dimension, inside the containers they come in.

    Parameters
    ----------
    batch : sequence
        Tensors, NumPy arrays, numbers, strings, or containers (dicts, tuples, lists) of them, all
        of one structure.

    Raises
    ------
    TypeError
        For anything else.
    RuntimeError
        If samples differ in shape or length.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _stacked(batch)
    if isinstance(first, (str, bytes)):  # NumPy's, too
        return batch
    if isinstance(first, (np.ndarray, np.generic)):
        if np.asarray(first).dtype.kind in "SUO":
            raise TypeError(_message(np.asarray(first).dtype))
        arrays = [np.asarray(sample) for sample in batch]
        _same_shapes(arrays)
        d = functools.reduce(promote_types, map(from_numpy_dtype, {a.dtype for a in arrays}))
        joined = backend(CPU).empty((len(arrays), *arrays[0].shape), d, CPU)  # the pool's memory
        return from_array(np.stack(arrays, out=joined, casting="unsafe"), d)
    if isinstance(first, float):
        return tensor(batch, dtype=float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, Mapping):
        joined = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return joined if type(first) is dict else _like(first, joined)
    if isinstance(first, Sequence):
        return _transposed(first, batch)
    raise TypeError(_message(type(first)))


def _stacked(samples: Sequence[Tensor]) -> Tensor:
    _same_shapes(samples)
    return stack(list(samples))


def _same_shapes(samples: Sequence[Any]) -> None:
    shapes = {tuple(sample.shape) for sample in samples}
    if len(shapes) > 1:
        raise RuntimeError(
            "stack expects each tensor to be equal size, but the samples of a batch have shapes "
            + ", ".join(str(list(shape)) for shape in sorted(shapes))
        )


def _transposed(first: Sequence[Any], batch: Sequence[Any]) -> Any:
    if any(len(sample) != len(first) for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    joined = [default_collate(part) for part in zip(*batch)]
    if hasattr(first, "_fields"):  # a named tuple
        return type(first)(*joined)
    return joined


def _like(first: Any, joined: dict[Any, Any]) -> Any:
    try:
        return type(first)(joined)
    except TypeError:  # a mapping that is not made from a dict
        return joined


def _message(kind: Any) -> str:
    return (
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {kind}" + _THEIRS * (getattr(kind, "__module__", "") == "torch")
    )


_THEIRS = ": have the dataset, or its last transform, give lucid_gpu.from_numpy(x.numpy())"


def default_convert(data: Any) -> Any:
    """NumPy arrays inside containers as tensors; everything else as it is."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "SUO":
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(default_convert(value) for value in data)
    return data
