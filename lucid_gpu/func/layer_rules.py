"""Batching rules of softmax, normalisation, losses, convolution, pooling, embedding."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func.batching import BatchLevel
from lucid_gpu.ops import (
    batch_norm,
    convolution,
    cross_entropy,
    embedding,
    interpolate,
    layer_norm,
    losses,
    normalization,
    padding,
    pooling,
    softmax,
    windows,
)
from lucid_gpu.ops.reductions import normalise_dim
from lucid_gpu.tape.rules import batching
from lucid_gpu.tensor import Tensor


@batching(softmax._by_rows)
def _softmax(level: BatchLevel, f: Any, x: Tensor, dim: int, log: bool) -> Tensor:
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, log))


@batching(normalization.moments)
def _moments(level: BatchLevel, f: Any, x: Tensor, dims: Any) -> Any:
    return level.wrap_all(f(level.value(x), [normalise_dim(d, x.ndim) + 1 for d in dims]))


@batching(layer_norm.layer_norm)
def _layer_norm(
    level: BatchLevel,
    f: Any,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if not level.holds(x):
        y = f(x, shape, None, None, eps)
    elif any(level.holds(t) for t in (weight, bias)):
        y = level.wrap(f(level.value(x), shape, None, None, eps))
    else:
        return level.wrap(f(level.value(x), shape, weight, bias, eps))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@batching(layer_norm.rms_norm)
def _rms_norm(
    level: BatchLevel,
    f: Any,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    if level.holds(x) and not level.holds(weight):
        return level.wrap(f(level.value(x), shape, weight, eps))
    y = (
        level.wrap(f(level.value(x), shape, None, eps))
        if level.holds(x)
        else f(x, shape, None, eps)
    )
    return y if weight is None else y * weight


@batching(cross_entropy.nll_loss)
def _nll_loss(
    level: BatchLevel,
    f: Any,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    return _class_loss(level, f, x, target, weight, ignore_index, reduction)


@batching(cross_entropy.cross_entropy)
def _cross_entropy(
    level: BatchLevel,
    f: Any,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if target.is_floating_point():
        return NotImplemented
    return _class_loss(
        level, f, x, target, weight, ignore_index, reduction, label_smoothing=label_smoothing
    )


def _class_loss(
    level: BatchLevel,
    f: Any,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore: int,
    reduction: str,
    **more: Any,
) -> Any:
    """One loss an element for all examples as one batch; then each example's own reduction."""
    smooth = more.get("label_smoothing")
    if (weight is not None and (level.holds(weight) or smooth)) or (smooth and ignore >= 0):
        return NotImplemented
    if x.ndim not in (1, 2) or target.ndim != x.ndim - 1:
        return NotImplemented
    classes = x.shape[-1]
    flat, numbers = level.full(x).reshape((-1, classes)), level.full(target).reshape(-1)
    each = f(flat, numbers, weight, ignore, "none", **more)
    loss = level.wrap(each.reshape((level.size, *target.shape)))
    if reduction != "mean":
        return cross_entropy.reduce_loss(loss, reduction)
    numbers = level.wrap(level.full(target))
    counted = (numbers != ignore).to(x.dtype)
    if weight is not None:
        known = level.full(target).clamp(0, classes - 1)
        counted = counted * level.wrap(weight[known])
    return loss.sum() / counted.sum()


@batching(batch_norm.batch_norm)
def _batch_norm(level: BatchLevel, f: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    named = dict(zip(("running_mean", "running_var", "weight", "bias", "training"), args))
    named.update(kwargs)
    running = [named.get("running_mean"), named.get("running_var")]
    if named.get("training") and any(r is not None and not level.holds(r) for r in running):
        raise RuntimeError(
            "vmap: batch_norm would update running_mean and running_var, which are not vmapped "
            "over, in place with the figures of a batched tensor. Please use layer_norm, use "
            "BatchNorm with track_running_stats=False, or vmap over the running figures too."
        )
    return NotImplemented


def _folded(level: BatchLevel, x: Tensor) -> Tensor:
    """A batch of batches as one batch."""
    return level.value(x).reshape((level.size * x.shape[0], *x.shape[1:]))


def _unfolded(level: BatchLevel, x: Tensor, result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple([_unfolded(level, x, r) for r in result])
    return level.wrap(result.reshape((level.size, x.shape[0], *result.shape[1:])))


def _as_groups(level: BatchLevel, x: Tensor) -> Tensor:
    """A batch of images (examples, n, c, h, w) as images (n, examples * c, h, w)."""
    n, c, *size = x.shape
    return level.full(x).transpose(0, 1).reshape((n, level.size * c, *size))


def _as_filters(level: BatchLevel, weight: Tensor) -> Tensor:
    return level.full(weight).reshape((level.size * weight.shape[0], *weight.shape[1:]))


def _from_groups(level: BatchLevel, images: Tensor) -> Tensor:
    n, c, *size = images.shape
    return level.wrap(images.reshape((n, level.size, c // level.size, *size)).transpose(0, 1))


@batching(losses._cut_off)
def _elementwise(level: BatchLevel, f: Any, x: Tensor, target: Tensor) -> Tensor:
    return level.wrap(f(level.full(x), level.full(target)))


@batching(padding.framed, padding.bordered, padding.folded_in, interpolate.along)
def _last_dimensions(level: BatchLevel, f: Any, x: Tensor, *how: Any) -> Tensor:
    return level.wrap(f(level.value(x), *how))


@batching(convolution._convolved)
def _convolved(
    level: BatchLevel, f: Any, x: Tensor, weight: Tensor, window: Any, groups: int
) -> Any:
    """The examples as one batch; with filters of their own, as groups that see no other."""
    if not level.holds(weight):
        return _unfolded(level, x, f(_folded(level, x), weight, window, groups))
    images, filters = _as_groups(level, x), _as_filters(level, weight)
    return _from_groups(level, f(images, filters, window, groups * level.size))


@batching(convolution._input_gradient)
def _input_gradient(
    level: BatchLevel, f: Any, g: Tensor, weight: Tensor, shape: Any, window: Any, groups: int
) -> Any:
    n, c, *size = shape
    if not level.holds(weight):
        whole = (level.size * n, c, *size)
        return _unfolded(level, g, f(_folded(level, g), weight, whole, window, groups))
    images, filters = _as_groups(level, g), _as_filters(level, weight)
    whole = (n, level.size * c, *size)
    return _from_groups(level, f(images, filters, whole, window, groups * level.size))


@batching(convolution._weight_gradient)
def _weight_gradient(
    level: BatchLevel, f: Any, x: Tensor, g: Tensor, window: Any, groups: int, columns: Any = None
) -> Any:
    images, cotangents = _as_groups(level, x), _as_groups(level, g)
    filters = f(images, cotangents, window, groups * level.size)
    return level.wrap(filters.reshape((level.size, g.shape[1], *filters.shape[1:])))


@batching(pooling._max_pool, pooling._avg_pool)
def _pool(level: BatchLevel, f: Any, rank: int, x: Tensor, *settings: Any) -> Any:
    if x.ndim == rank + 2:
        return _unfolded(level, x, f(rank, _folded(level, x), *settings))
    if x.ndim == rank + 1:
        return level.wrap(f(rank, level.value(x), *settings))
    return NotImplemented


@batching(windows.unfold, windows.fold)
def _columns(level: BatchLevel, f: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    batched = 4 if f is windows.unfold else 3
    if x.ndim == batched:
        return _unfolded(level, x, f(_folded(level, x), *args, **kwargs))
    if x.ndim == batched - 1:
        return level.wrap(f(level.value(x), *args, **kwargs))
    return NotImplemented


@batching(embedding.embedding)
def _embedding(
    level: BatchLevel, f: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Any:
    if level.holds(weight):
        return NotImplemented
    return level.wrap(f(level.value(x), weight, *args, **kwargs))
