"""What users write between brackets, checked, as NumPy and CuPy take it.

`parse` gives a tuple of ints, slices, None, ``...``, bools and arrays of the tensor's device.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.kernels import bounds
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor, from_array


def parse(
    input: Tensor, index: Any, wait: bool = False, low: int | None = None
) -> tuple[Any, bool]:
    """An index as NumPy takes it, and whether it is basic (a view).

    ``wait``: positions outside the tensor raise here on a GPU too; see `kernels.bounds.check`, also
    for ``low``.

    Raises
    ------
    IndexError
        For positions outside the tensor, too many indices, or anything but an index.
    ValueError
        For slices with a negative step, which no view of a tensor has.
    """
    parts = list(index) if isinstance(index, tuple) or _stands_for_a_tuple(index) else [index]
    parts = [_part(input, p) for p in parts]
    if len(parts) > 1:
        parts = _without_later_ellipses(parts)
    used = [*map(consumes, parts)]
    shape, basic = input._expr.shape, True
    rank = len(shape)
    if sum(used) > rank:
        if not rank and len(parts) == 1 and type(parts[0]) is int:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"
            )
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    dim, backwards = 0, {}
    for position, part in enumerate(parts):
        if part is Ellipsis:
            dim = rank - sum(used[position + 1 :])
            continue
        if type(part) is int:
            extent = shape[dim]
            if not -extent <= part < extent:
                raise IndexError(
                    f"index {part} is out of bounds for dimension {dim} with size {extent}"
                )
        elif hasattr(part, "dtype"):
            basic = False
            _check_array(input, part, dim, wait, low)
        elif isinstance(part, bool):
            basic = False
        elif type(part) is slice and part.step is not None and part.step < 0:
            backwards[dim] = position
        dim += used[position]
    if backwards:
        raise Backwards(parts, backwards)
    if not basic and len(parts) > 1:
        _check_they_broadcast(parts)
    return tuple(parts), basic


class Backwards(ValueError):
    """An index with slices that go backwards: its parts, and the place of each by dimension."""

    def __init__(self, parts: list[Any], places: dict[int, int]) -> None:
        super().__init__("step must be greater than zero")
        self.parts, self.places = parts, places

    def turned(self, input: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        """The tensor with these dimensions flipped, and the index forwards."""
        for dim, position in self.places.items():
            n = input.shape[dim]
            span = range(n)[self.parts[position]][::-1]
            start = n - 1 - span[-1] if span else 0
            stop = n - span[0] if span else 0
            self.parts[position] = slice(start, stop, abs(span.step))
        where = input.device
        parts = [from_array(p, None, where) if hasattr(p, "dtype") else p for p in self.parts]
        return input.flip(tuple(self.places)), tuple(parts)


def _stands_for_a_tuple(index: Any) -> bool:
    """PyTorch takes a list that holds tensors, sequences, slices or None for a tuple."""
    if not isinstance(index, list) or len(index) >= 32 or state.of_arrays:
        return False
    kinds = (Tensor, slice, list, tuple, range, np.ndarray)
    if not any(p is None or p is Ellipsis or isinstance(p, kinds) for p in index):
        return False
    warn_user(
        "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] "
        "instead of x[seq], or x[lucid_gpu.tensor(seq)] for one index tensor.",
    )
    return True


def _without_later_ellipses(parts: list[Any]) -> list[Any]:
    """Only one can stand for anything; the others are let go at the end, where PyTorch allows."""
    if sum(p is Ellipsis for p in parts) > 1:
        first = next(i for i, p in enumerate(parts) if p is Ellipsis)
        while parts[-1] is Ellipsis and len(parts) - 1 > first:
            parts.pop()
    return parts


def _check_they_broadcast(parts: Sequence[Any]) -> None:
    shapes = [p.shape for p in parts if hasattr(p, "dtype") and p.dtype != np.bool_]
    if len(shapes) > 1 and shapes.count(shapes[0]) < len(shapes):
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            raise IndexError(
                "shape mismatch: indexing tensors could not be broadcast together with shapes "
                + ", ".join([str(list(shape)) for shape in shapes])
            ) from None


def ints_apart(parts: Sequence[Any]) -> bool:
    """Whether ints stand apart from index arrays: PyTorch selects by them before it looks.

    NumPy counts them among the arrays.
    """
    if state.of_arrays or int not in map(type, parts):
        return False
    places = [i for i, p in enumerate(parts) if isinstance(p, int) or hasattr(p, "dtype")]
    return places[-1] - places[0] >= len(places)


def consumes(part: Any) -> int:
    """How many dimensions a part of an index speaks of."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if hasattr(part, "dtype") and part.dtype == np.bool_:
        return int(part.ndim)
    return 1


_INDEX_TYPES = (dt.int64, dt.int32, dt.uint8, dt.bool)


def _part(input: Tensor, part: Any) -> Any:
    if part is None or part is Ellipsis or type(part) in (int, bool):
        return part
    if isinstance(part, slice):
        if part.step is not None and int(part.step) == 0:
            raise ValueError("step must be greater than zero")
        return slice(*[_position(v) for v in (part.start, part.stop, part.step)])
    if state.of_arrays:
        part = _numpys(part)
    if isinstance(part, Tensor):
        program = part._expr.program
        d = program.dtype
        if not part._expr.shape and d.category == 1 and d is not dt.uint8:
            return int(part.item())
        if d not in _INDEX_TYPES:
            raise IndexError(
                f"tensors used as indices must be long, int, byte or bool tensors, got {d.name}"
            )
        if program.device != input._expr.program.device:
            if part.device.type != "cpu":
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor "
                    f"({input.device}), but one is on {part.device}; move it with .to(...)"
                )
            part = part.to(input.device)
        array = part.array
        if d is dt.uint8:
            warn_user(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
                "instead."
            )
            return array.astype(bool)
        return array
    if isinstance(part, (list, tuple, range, np.ndarray)):
        listed = not isinstance(part, np.ndarray)
        made = tensor(list(part) if listed else part, device=input.device)
        return _part(input, made.to(dt.int64) if listed and not made.numel() else made)
    if hasattr(part, "__index__"):
        return part.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(part).__name__})"
    )


def _numpys(part: Any) -> Any:
    """A part that NumPy takes in more types: whole numbers of all, and its own truth values."""
    if isinstance(part, np.bool):
        return np.asarray(part)
    if isinstance(part, np.ndarray) and part.dtype.kind in "iu":
        return part.astype(np.int64)
    whole = isinstance(part, Tensor) and part.dtype.category == 1
    return part.to(dt.int64) if whole else part


def _position(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            "slice indices must be integers or None or have an __index__ method, not "
            f"{type(value).__name__}"
        ) from None


def _check_array(
    input: Tensor, array: Any, dim: int, wait: bool = False, low: int | None = None
) -> None:
    shape = input._expr.shape
    if array.dtype == np.bool_:
        if tuple(array.shape) != shape[dim : dim + array.ndim]:
            raise IndexError(
                f"The shape of the mask {list(array.shape)} at index 0 does not match the shape of "
                f"the indexed tensor {list(shape)} at index {dim}"
            )
        return
    bounds.check(array, shape[dim], dim, input._expr.program.device, low, wait=wait)


def tensors_of(index: Any) -> list[Tensor]:
    """The tensors that an index names positions with."""
    parts = index if isinstance(index, (tuple, list)) else (index,)
    return [part for part in parts if isinstance(part, Tensor)]


def together(parts: Sequence[Any]) -> bool:
    """Whether the element-wise parts of an index stand side by side, so that results do too."""
    if not any(_is_advanced(p) for p in parts):
        return True
    if any(isinstance(p, bool) or (hasattr(p, "dtype") and not p.ndim) for p in parts):
        return False
    places = [i for i, p in enumerate(parts) if _is_advanced(p) or type(p) is int]
    return places == list(range(places[0], places[-1] + 1))


def _is_advanced(part: Any) -> bool:
    """Whether an index part selects elements one by one."""
    return isinstance(part, (list, range, tuple)) or hasattr(part, "dtype")


def masks_as_positions(index: Any) -> Any:
    """An index in which masks of a GPU are the positions they name: the host waits for their number
    once, not at each use.
    """
    parts = parts_of(index)
    if not any(getattr(p, "dtype", None) == np.bool_ and p.ndim for p in parts):
        return index
    converted: list[Any] = []
    for p in parts:
        if getattr(p, "dtype", None) == np.bool_ and p.ndim:
            converted += p.nonzero()
        else:
            converted.append(p)
    return tuple(converted) if may_repeat(index) else Distinct(converted)


class Distinct(tuple[Any, ...]):
    """An index that names no position twice."""


def parts_of(index: Any) -> tuple[Any, ...]:
    """An index as a tuple."""
    return index if isinstance(index, tuple) else (index,)


def may_repeat(index: Any) -> bool:
    """Whether an index can name a position twice."""
    if type(index) is Distinct:
        return False
    return any(hasattr(p, "dtype") and p.dtype != np.bool_ for p in parts_of(index))


def only_mask(index: Any) -> Any:
    """The mask that an index consists of, or None."""
    first, *rest = parts_of(index)
    if getattr(first, "dtype", None) != np.bool_ or not first.ndim:
        return None
    whole = all(p is Ellipsis or (type(p) is slice and p == slice(None)) for p in rest)
    return first if whole else None
