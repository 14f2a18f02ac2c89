"""Views as copies, under PyTorch's names: ``transpose_copy`` copies what ``transpose`` shows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.ops import shape
from lucid_gpu.ops.arguments import public
from lucid_gpu.ops.complex_views import view_as_complex, view_as_real
from lucid_gpu.ops.diagonals import diagonal
from lucid_gpu.ops.index_primitives import slice_view
from lucid_gpu.ops.memory_formats import in_order
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.selections import select
from lucid_gpu.ops.splitting import split, split_with_sizes, unbind
from lucid_gpu.ops.strides import as_strided, unfold
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor


def _view(self: Tensor, size: Sequence[int]) -> Tensor:
    return shape.reshape(self, size)  # PyTorch copies where there is no such view


def _permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    return shape.permute(input, dims)


def _expand(input: Tensor, size: Sequence[int], *, implicit: bool = False) -> Tensor:
    return shape.expand(input, size)


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of a part of one dimension, of shape ``(..., (end - start) / step, ...)``.

    Raises
    ------
    IndexError
        For a ``dim`` that there is not.
    RuntimeError
        For a step that is not above 0.
    """
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    index = (slice(None),) * normalize_dim(dim, input.ndim)
    return slice_view(input, (*index, slice(start, end, step)), "SliceBackward0")


def _itself(input: Tensor) -> Tensor:
    return input


def _detach(input: Tensor) -> Tensor:
    return input.detach()


@op
def _row_major_copy(input: Tensor) -> Tensor:
    return in_order(input, None)


batching(_row_major_copy)(on_value)


def _copying(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """What copies each view that a function gives."""

    @functools.wraps(function)
    def copying(*args: Any, **kwargs: Any) -> Any:
        seen = function(*args, **kwargs)
        if isinstance(seen, Tensor):
            return _row_major_copy(seen)
        return tuple([_row_major_copy(part) for part in seen])

    copying.__name__ = copying.__qualname__ = f"{name}_copy"
    copying.__module__ = __name__
    own = function.__doc__ if function is _slice else None
    copying.__doc__ = own or f"What `{name}` shows, as a row-major copy, or as copies."
    return public(copying)


_VIEWS: dict[str, Any] = {
    "alias": _itself,
    "as_strided": as_strided,
    "detach": _detach,
    "diagonal": diagonal,
    "expand": _expand,
    "permute": _permute,
    "select": select,
    "slice": _slice,
    "split": split,
    "split_with_sizes": split_with_sizes,
    "squeeze": shape.squeeze,
    "t": shape.t,
    "transpose": shape.transpose,
    "unbind": unbind,
    "unfold": unfold,
    "unsqueeze": shape.unsqueeze,
    "view": _view,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
}
FUNCTIONS = tuple([_copying(name, function) for name, function in _VIEWS.items()])
