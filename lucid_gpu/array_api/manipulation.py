"""Shapes, and tensors joined, cut and repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.array_api.types import promoted
from lucid_gpu.numpy import arranging, joining, shapes
from lucid_gpu.tensor import Tensor

__all__ = ["broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis"]
__all__ += ["permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack"]


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Each in the shape of all together."""
    return list(shapes.broadcast_arrays(*arrays))


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """In a larger shape."""
    return shapes.broadcast_to(x, tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """One after the other along an axis, in their common type; other axes are of one shape."""
    joined: Tensor = joining.concatenate(promoted(*arrays), axis)
    return joined


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """A view with an axis of length one: ``(a, b)`` to ``(a, 1, b)``."""
    return shapes.expand_dims(x, axis)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """In the opposite order along axes, by default all; of the same shape."""
    return arranging.flip(x, axis)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """A view with axes at other places: the shape is rearranged."""
    return shapes.moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """A view with the axes in another order: of shape ``(x.shape[a] for a in axes)``."""
    return shapes.transpose(x, tuple(axes))


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element several times; ``repeats`` is a number or a tensor of one for each."""
    counts = repeats.detach().cpu().numpy() if isinstance(repeats, Tensor) else repeats
    return arranging.repeat(x, counts, axis)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """In another shape.

    Raises
    ------
    ValueError
        If ``copy`` is False and a copy is needed.
    """
    if copy is False:
        try:
            return x.view(tuple(shape))
        except RuntimeError as error:
            raise ValueError(f"reshape(copy=False): {error}") from None
    return shapes.reshape(x, tuple(shape), copy=copy)


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Shifted around along axes, or, without, in the order of all elements."""
    return arranging.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """A view without axes of length one: ``(a, 1, b)`` to ``(a, b)``."""
    return shapes.squeeze(x, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis, in their common type."""
    stacked: Tensor = joining.stack(promoted(*arrays), axis)
    return stacked


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Side by side so many times along each axis: of shape ``(n * r for n, r)``."""
    return arranging.tile(x, tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts along an axis, which they lose in their shape."""
    front = shapes.moveaxis(x, axis, 0)
    return tuple([front[k] for k in range(front.shape[0])])  # each may be written
