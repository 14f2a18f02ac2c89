"""Batching rules of views, reshapes, and of tensors made like others."""

from __future__ import annotations

from typing import Any

from lucid_gpu.dtypes import dtype
from lucid_gpu.func.batching import BatchLevel
from lucid_gpu.ops import (
    complex_numbers,
    creation,
    diagonals,
    elementwise,
    rolled,
    shape,
    strides,
    transfer,
)
from lucid_gpu.ops.creation import full
from lucid_gpu.ops.reductions import normalise_dim, normalise_dims
from lucid_gpu.tape.rules import batching
from lucid_gpu.tensor import Tensor


@batching(shape.reshape)
def _reshape(level: BatchLevel, f: Any, x: Tensor, *sizes: Any, **named: Any) -> Any:
    if named:
        return f(x, *named.values())
    wanted = shape._infer(tuple(x.shape), shape._sizes(sizes))
    return level.wrap(f(level.value(x), (level.size, *wanted)))


@batching(shape.view)
def _view(level: BatchLevel, f: Any, x: Tensor, *sizes: Any, **named: Any) -> Any:
    if named:
        return f(x, *named.values())
    if len(sizes) == 1 and isinstance(sizes[0], dtype):
        return level.wrap(f(level.value(x), sizes[0]))
    return _reshape(level, f, x, *sizes)


@batching(shape.reshape_strided)
def _insert(level: BatchLevel, f: Any, x: Tensor, sizes: tuple[int, ...], dim: int) -> Tensor:
    return level.wrap(f(level.value(x), (level.size, *sizes), dim + 1))


@batching(shape.permute)
def _permute(level: BatchLevel, f: Any, x: Tensor, *dims: Any, **named: Any) -> Any:
    if named:
        return f(x, *named.values())
    order = shape._sizes(dims)
    if len(order) != x.ndim:
        return shape_error(x, order)
    inner = [normalise_dim(d, x.ndim) + 1 for d in order]
    return level.wrap(f(level.value(x), (0, *inner)))


def shape_error(x: Tensor, order: tuple[int, ...]) -> Any:
    """What `permute` raises for one example."""
    return shape.permute(full(tuple(x.shape), 0.0), order)


@batching(shape.transpose)
def _transpose(level: BatchLevel, f: Any, x: Tensor, dim0: int, dim1: int) -> Tensor:
    a, b = normalise_dim(dim0, x.ndim), normalise_dim(dim1, x.ndim)
    if not x.ndim:
        return level.alias(x)
    return level.wrap(f(level.value(x), a + 1, b + 1))


@batching(shape.expand)
def _expand(level: BatchLevel, f: Any, x: Tensor, *sizes: Any, **named: Any) -> Any:
    if named:
        return f(x, *sizes, *[v for name, v in named.items() if name == "size"])
    wanted = shape._sizes(sizes)
    if len(wanted) < x.ndim:
        return NotImplemented
    missing = len(wanted) - x.ndim
    own = tuple(x.shape)
    filled = [own[i - missing] if n == -1 and i >= missing else n for i, n in enumerate(wanted)]
    return level.wrap(f(level.aligned(x, len(wanted)), (level.size, *filled)))


@batching(shape.flip)
def _flip(level: BatchLevel, f: Any, x: Tensor, *dims: Any, **named: Any) -> Any:
    if named:
        return f(x, *named.values())
    axes = normalise_dims(shape._sizes(dims), x.ndim) if x.ndim else ()
    return level.wrap(f(level.value(x), [d + 1 for d in axes])) if axes else x.clone()


@batching(rolled.rolled)
def _rolled(level: BatchLevel, f: Any, x: Tensor, shifts: Any, dims: Any) -> Any:
    return level.wrap(f(level.value(x), shifts, [d + 1 for d in dims]))


@batching(shape.cat)
def _cat(level: BatchLevel, f: Any, tensors: Any, dim: int = 0, **named: Any) -> Any:
    if named:
        return f(tensors, named.get("axis", dim))
    kept = [t for t in tensors if tuple(t.shape) != (0,)] or list(tensors)[:1]
    place = normalise_dim(dim, kept[0].ndim)
    return level.wrap(f([level.full(t) for t in kept], place + 1))


@batching(diagonals.diagonal)
def _diagonal(
    level: BatchLevel, f: Any, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    a, b = diagonals._plane("diagonal", x.ndim, dim1, dim2)
    return level.wrap(f(level.value(x), offset, a + 1, b + 1))


@batching(strides.unfold)
def _windows(level: BatchLevel, f: Any, x: Tensor, dimension: int, size: int, step: int) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalise_dim(dimension, x.ndim) + 1, size, step))


@batching(shape.contiguous, transfer.to_device, complex_numbers._part)
def _same(level: BatchLevel, f: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return level.wrap(f(level.value(x), *args, **kwargs))


@batching(shape.is_contiguous)
def _is_contiguous(level: BatchLevel, f: Any, x: Tensor) -> bool:
    return bool(f(level.value(x)))


@batching(complex_numbers.complex)
def _complex(level: BatchLevel, f: Any, real: Tensor, imag: Tensor) -> Tensor:
    rank = max(real.ndim, imag.ndim)
    return level.wrap(f(level.aligned(real, rank), level.aligned(imag, rank)))


@batching(creation.zeros_like, creation.ones_like, creation.full_like, creation.empty_like)
def _like(level: BatchLevel, f: Any, x: Tensor, *args: Any, **options: Any) -> Tensor:
    if options.pop("requires_grad", False):
        raise RuntimeError(
            "vmap: requires_grad=True makes a leaf inside a function that is being transformed; "
            "use lucid_gpu.func.grad instead"
        )
    return level.wrap(f(level.value(x), *args, **options))


@batching(elementwise._refuse_zero)
def _refuse_zero(level: BatchLevel, f: Any, *operands: Any) -> None:
    f(*[level.value(o) for o in operands])
