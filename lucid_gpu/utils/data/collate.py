"""From a list of samples to one batch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from lucid_gpu.device import CPU
from lucid_gpu.devices import backend
from lucid_gpu.dtypes import float64, from_numpy_dtype, promote_types
from lucid_gpu.ops.creation import as_tensor, tensor
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor, from_array

__all__ = [
    "collate",
    "collate_float_fn",
    "collate_int_fn",
    "collate_numpy_array_fn",
    "collate_str_fn",
    "collate_tensor_fn",
    "default_collate",
    "default_collate_fn_map",
    "default_convert",
]

_Functions = dict[type | tuple[type, ...], Callable[..., Any]]


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples joined along a new first dimension, inside the containers they come in.

    `collate` with ``default_collate_fn_map``, which users may extend.

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
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: _Functions | None = None) -> Any:
    """Samples joined by a function for their type, inside the containers they come in.

    Parameters
    ----------
    batch : sequence
        Of one structure.
    collate_fn_map : dict, optional
        From a type, or a tuple of types, to ``function(batch, collate_fn_map=...)``. The type of
        the first sample is looked up, then the first entry that it is an instance of.

    Raises
    ------
    TypeError
        For samples that are no containers and of no type in the table.
    RuntimeError
        If samples differ in length.
    """
    first = batch[0]
    if collate_fn_map is not None:
        function = collate_fn_map.get(type(first)) or next(
            (f for kind, f in collate_fn_map.items() if isinstance(first, kind)), None
        )
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    join = functools.partial(collate, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _like(first, {key: join([sample[key] for sample in batch]) for key in first})
    if isinstance(first, (str, bytes)) or not isinstance(first, Sequence):
        raise TypeError(_message(type(first)))
    if any(len(sample) != len(first) for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    return _like(first, [join(part) for part in zip(*batch)])


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    """Tensors as one; RuntimeError if they differ in shape."""
    _same_shapes(batch)
    return stack(list(batch))


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """NumPy's arrays and numbers as one tensor; RuntimeError if they differ in shape."""
    arrays = [np.asarray(sample) for sample in batch]
    if arrays[0].dtype.kind in "SUO":
        raise TypeError(_message(arrays[0].dtype))
    _same_shapes(arrays)
    d = functools.reduce(promote_types, map(from_numpy_dtype, {a.dtype for a in arrays}))
    joined = backend(CPU).empty((len(arrays), *arrays[0].shape), d, CPU)  # the pool's memory
    return from_array(np.stack(arrays, out=joined, casting="unsafe"), d)


def collate_float_fn(batch: Sequence[float], *, collate_fn_map: Any = None) -> Tensor:
    """Numbers as a tensor of float64."""
    return tensor(batch, dtype=float64)


def collate_int_fn(batch: Sequence[int], *, collate_fn_map: Any = None) -> Tensor:
    """Integers or bools as a tensor."""
    return tensor(batch)


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Strings as they are."""
    return batch


default_collate_fn_map: _Functions = {
    Tensor: collate_tensor_fn,
    (str, bytes): collate_str_fn,  # NumPy's, too
    np.ndarray: collate_numpy_array_fn,
    np.generic: collate_numpy_array_fn,
    float: collate_float_fn,
    int: collate_int_fn,
}


def _same_shapes(samples: Sequence[Any]) -> None:
    shapes = {tuple(sample.shape) for sample in samples}
    if len(shapes) > 1:
        raise RuntimeError(
            "stack expects each tensor to be equal size, but the samples of a batch have shapes "
            + ", ".join(str(list(shape)) for shape in sorted(shapes))
        )


def _like(first: Any, parts: Any) -> Any:
    """The parts in a container of the first one's type, with what else it holds; or in a list."""
    if isinstance(first, Sequence) and hasattr(first, "_fields"):  # a named tuple
        return type(first)(*parts)
    if isinstance(first, tuple) or type(first) in (dict, list):
        return parts
    try:
        if isinstance(first, (MutableMapping, MutableSequence)):
            made = copy.copy(first)
            items = parts.items() if isinstance(parts, dict) else enumerate(parts)
            for key, part in items:
                made[key] = part
            return made
        return type(first)(parts)
    except TypeError:  # it is not made from a dict or a list, or cannot be copied or written
        return parts


def _message(kind: Any) -> str:
    return (
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {kind}" + _THEIRS * (getattr(kind, "__module__", "") == "torch")
    )


_THEIRS = ": have the dataset, or its last transform, give lucid_gpu.from_numpy(x.numpy())"


def default_convert(data: Any) -> Any:
    """NumPy arrays inside containers as tensors; everything else as it is, but tuples as lists."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "SUO":
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, (str, bytes)) or not isinstance(data, Sequence):
        return data
    return _like(data, [default_convert(value) for value in data])
