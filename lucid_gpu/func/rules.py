"""Batching rules: how ops that are not elementwise act on batched tensors.

A rule is called as ``rule(level, function, *arguments)``. Most call the function again on the
values, with every dimension one further, and wrap the result. What has no rule is tried as it is
written, and otherwise runs one example at a time (`entries`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lucid_gpu.dtypes import dtype
from lucid_gpu.func.batching import BatchLevel
from lucid_gpu.func.entries import Entry
from lucid_gpu.ops import (
    batch_norm,
    complex_numbers,
    convolution,
    creation,
    cross_entropy,
    ctc,
    cumsum,
    cumulative,
    diagonals,
    dropout,
    elementwise,
    embedding,
    fourier,
    index_add,
    indexing,
    interpolate,
    layer_norm,
    losses,
    matmul,
    normalization,
    order,
    padding,
    pooling,
    random,
    reductions,
    scatter_reduce,
    shape,
    softmax,
    statistics,
    strides,
    transfer,
    windows,
)
from lucid_gpu.ops.creation import arange, full
from lucid_gpu.ops.exchange import Exchanged
from lucid_gpu.ops.linalg import cholesky, determinant, eigen, inverse, lu, products, qr, svd
from lucid_gpu.ops.reductions import normalise_dim, normalise_dims
from lucid_gpu.tensor import Tensor

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these functions."""

    def register(one: Rule) -> Rule:
        for function in functions:
            RULES[function] = one
        return one

    return register


# --- shapes ---------------------------------------------------------------------------------------


@rule(shape.reshape)
def _reshape(level: BatchLevel, f: Any, x: Tensor, *sizes: Any, **named: Any) -> Any:
    if named:
        return f(x, *named.values())
    wanted = shape._infer(tuple(x.shape), shape._sizes(sizes))
    return level.wrap(f(level.value(x), (level.size, *wanted)))


@rule(shape.view)
def _view(level: BatchLevel, f: Any, x: Tensor, *sizes: Any, **named: Any) -> Any:
    if named:
        return f(x, *named.values())
    if len(sizes) == 1 and isinstance(sizes[0], dtype):
        return level.wrap(f(level.value(x), sizes[0]))
    return _reshape(level, f, x, *sizes)


@rule(shape.reshape_strided)
def _insert(level: BatchLevel, f: Any, x: Tensor, sizes: tuple[int, ...], dim: int) -> Tensor:
    return level.wrap(f(level.value(x), (level.size, *sizes), dim + 1))


@rule(shape.permute)
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


@rule(shape.transpose)
def _transpose(level: BatchLevel, f: Any, x: Tensor, dim0: int, dim1: int) -> Tensor:
    a, b = normalise_dim(dim0, x.ndim), normalise_dim(dim1, x.ndim)
    if not x.ndim:
        return level.alias(x)
    return level.wrap(f(level.value(x), a + 1, b + 1))


@rule(shape.expand)
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


@rule(shape.flip)
def _flip(level: BatchLevel, f: Any, x: Tensor, *dims: Any, **named: Any) -> Any:
    if named:
        return f(x, *named.values())
    axes = normalise_dims(shape._sizes(dims), x.ndim) if x.ndim else ()
    return level.wrap(f(level.value(x), [d + 1 for d in axes])) if axes else x.clone()


@rule(shape.cat)
def _cat(level: BatchLevel, f: Any, tensors: Any, dim: int = 0, **named: Any) -> Any:
    if named:
        return f(tensors, named.get("axis", dim))
    kept = [t for t in tensors if tuple(t.shape) != (0,)] or list(tensors)[:1]
    place = normalise_dim(dim, kept[0].ndim)
    return level.wrap(f([level.full(t) for t in kept], place + 1))


@rule(diagonals.diagonal)
def _diagonal(
    level: BatchLevel, f: Any, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    a, b = diagonals._plane("diagonal", x.ndim, dim1, dim2)
    return level.wrap(f(level.value(x), offset, a + 1, b + 1))


@rule(strides.unfold)
def _windows(level: BatchLevel, f: Any, x: Tensor, dimension: int, size: int, step: int) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalise_dim(dimension, x.ndim) + 1, size, step))


@rule(shape.contiguous, transfer.to_device, complex_numbers._part)
def _same(level: BatchLevel, f: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return level.wrap(f(level.value(x), *args, **kwargs))


@rule(shape.is_contiguous)
def _is_contiguous(level: BatchLevel, f: Any, x: Tensor) -> bool:
    return bool(f(level.value(x)))


@rule(complex_numbers.complex)
def _complex(level: BatchLevel, f: Any, real: Tensor, imag: Tensor) -> Tensor:
    rank = max(real.ndim, imag.ndim)
    return level.wrap(f(level.aligned(real, rank), level.aligned(imag, rank)))


# --- reductions -----------------------------------------------------------------------------------


def _with_dim(level: BatchLevel, x: Tensor) -> Tensor:
    """A value with at least one dimension after the batch."""
    return level.value(x) if x.ndim else level.value(x).unsqueeze(1)


def _inner(dim: Any, x: Tensor) -> tuple[int, ...]:
    return tuple([d + 1 for d in normalise_dims(dim, x.ndim)]) or (1,)


@rule(reductions.sum, reductions.mean)
def _sum(
    level: BatchLevel, f: Any, x: Tensor, dim: Any = None, keepdim: bool = False, **options: Any
) -> Tensor:
    keepdim = keepdim and x.ndim > 0
    return level.wrap(f(_with_dim(level, x), _inner(dim, x), keepdim, **options))


@rule(reductions.sum_to_shape)
def _sum_to_shape(level: BatchLevel, f: Any, x: Tensor, wanted: tuple[int, ...]) -> Tensor:
    missing = x.ndim - len(wanted)
    return level.wrap(
        f(level.value(x), (level.size, *[1] * missing, *wanted)).reshape((level.size, *wanted))
    )


@rule(reductions._extremum)
def _extremum(
    level: BatchLevel,
    f: Any,
    name: str,
    x: Tensor,
    dim: Any,
    keepdim: bool,
    *rest: Any,
    **more: Any,
) -> Tensor:
    keepdim = keepdim and x.ndim > 0
    return level.wrap(f(name, _with_dim(level, x), _inner(dim, x), keepdim, *rest, **more))


@rule(reductions._position)
def _position(
    level: BatchLevel, f: Any, name: str, x: Tensor, dim: int | None, keepdim: bool
) -> Tensor:
    if dim is None or not x.ndim:
        flat = level.value(x).reshape((level.size, -1))
        found = f(name, flat, 1, False)
        return level.wrap(found.reshape((level.size, *[1] * (x.ndim if keepdim else 0))))
    return level.wrap(f(name, level.value(x), normalise_dim(dim, x.ndim) + 1, keepdim))


@rule(reductions.prod)
def _prod(
    level: BatchLevel, f: Any, x: Tensor, dim: int | None = None, keepdim: bool = False, **o: Any
) -> Tensor:
    if dim is None or not x.ndim:
        return level.wrap(f(level.value(x).reshape((level.size, -1)), 1, **o))
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, keepdim, **o))


@rule(reductions._median)
def _median(
    level: BatchLevel, f: Any, x: Tensor, dim: int | None, keepdim: bool, ignore_nan: bool
) -> Any:
    if dim is None or not x.ndim:
        return NotImplemented
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap_all(f(level.value(x), place, keepdim, ignore_nan))


@rule(cumsum.running_sum)
def _running_sum(level: BatchLevel, f: Any, x: Tensor, dim: int, *rest: Any) -> Tensor:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, *rest))


@rule(cumulative._running_product)
def _running_product(level: BatchLevel, f: Any, x: Tensor, dim: int) -> Tensor:
    return level.wrap(f(level.value(x), dim + 1))


@rule(cumulative.recurrence)
def _recurrence(level: BatchLevel, f: Any, a: Tensor, b: Tensor, dim: int, *rest: Any) -> Tensor:
    return level.wrap(f(level.full(a), level.full(b), dim + 1, *rest))


@rule(cumulative.logcumsumexp, cumulative.cummax, cumulative.cummin)
def _running(level: BatchLevel, f: Any, x: Tensor, dim: int) -> Any:
    if not x.ndim:
        return NotImplemented
    found = f(level.value(x), normalise_dim(dim, x.ndim) + 1)
    return level.wrap(found) if isinstance(found, Tensor) else level.wrap_all(found)


@rule(reductions._truth)
def _truth(level: BatchLevel, f: Any, name: str, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    keepdim = keepdim and x.ndim > 0
    return level.wrap(f(name, _with_dim(level, x), _inner(dim, x), keepdim))


# --- products -------------------------------------------------------------------------------------


@rule(matmul._product)
def _product(level: BatchLevel, f: Any, a: Tensor, b: Tensor) -> Tensor:
    if not level.holds(a) and a.ndim == b.ndim == 2 and b.shape[-1] == 1:
        rows = level.value(b).squeeze(-1)  # a vector an example: one product of matrices
        return level.wrap(f(rows, a.mT).unsqueeze(-1))
    rank = max(a.ndim, b.ndim)
    if not level.holds(b) and b.ndim == 2:
        return level.wrap(f(level.value(a), b))
    return level.wrap(f(level.aligned(a, rank), level.aligned(b, rank)))


@rule(matmul.linear)
def _linear(
    level: BatchLevel, f: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    if not level.holds(weight):
        if not level.holds(x):
            return f(x, weight) + bias
        product = level.wrap(f(level.value(x), weight))
    else:
        product = x @ weight.mT
    return product if bias is None else product + bias


# --- softmax, moments -----------------------------------------------------------------------------


@rule(softmax._logsumexp)
def _logsumexp(level: BatchLevel, f: Any, x: Tensor, dim: int) -> Tensor:
    found = f(_with_dim(level, x), normalise_dim(dim, x.ndim) + 1)
    return level.wrap(found if x.ndim else found.squeeze(1))


@rule(softmax._by_rows)
def _softmax(level: BatchLevel, f: Any, x: Tensor, dim: int, log: bool) -> Tensor:
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, log))


@rule(normalization.moments)
def _moments(level: BatchLevel, f: Any, x: Tensor, dims: Any) -> Any:
    return level.wrap_all(f(level.value(x), [normalise_dim(d, x.ndim) + 1 for d in dims]))


@rule(layer_norm.layer_norm)
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


@rule(layer_norm.rms_norm)
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


@rule(cross_entropy.nll_loss)
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


@rule(cross_entropy.cross_entropy)
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


@rule(batch_norm.batch_norm)
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


# --- images ---------------------------------------------------------------------------------------


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


@rule(losses._cut_off)
def _elementwise(level: BatchLevel, f: Any, x: Tensor, target: Tensor) -> Tensor:
    return level.wrap(f(level.full(x), level.full(target)))


@rule(padding.framed, padding.bordered, padding.folded_in, interpolate.along)
def _last_dimensions(level: BatchLevel, f: Any, x: Tensor, *how: Any) -> Tensor:
    return level.wrap(f(level.value(x), *how))


@rule(convolution._convolved)
def _convolved(
    level: BatchLevel, f: Any, x: Tensor, weight: Tensor, window: Any, groups: int
) -> Any:
    """The examples as one batch; with filters of their own, as groups that see no other."""
    if not level.holds(weight):
        return _unfolded(level, x, f(_folded(level, x), weight, window, groups))
    images, filters = _as_groups(level, x), _as_filters(level, weight)
    return _from_groups(level, f(images, filters, window, groups * level.size))


@rule(convolution._input_gradient)
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


@rule(convolution._weight_gradient)
def _weight_gradient(
    level: BatchLevel, f: Any, x: Tensor, g: Tensor, window: Any, groups: int, columns: Any = None
) -> Any:
    images, cotangents = _as_groups(level, x), _as_groups(level, g)
    filters = f(images, cotangents, window, groups * level.size)
    return level.wrap(filters.reshape((level.size, g.shape[1], *filters.shape[1:])))


@rule(pooling._max_pool, pooling._avg_pool)
def _pool(level: BatchLevel, f: Any, rank: int, x: Tensor, *settings: Any) -> Any:
    if x.ndim == rank + 2:
        return _unfolded(level, x, f(rank, _folded(level, x), *settings))
    if x.ndim == rank + 1:
        return level.wrap(f(rank, level.value(x), *settings))
    return NotImplemented


@rule(windows.unfold, windows.fold)
def _columns(level: BatchLevel, f: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    batched = 4 if f is windows.unfold else 3
    if x.ndim == batched:
        return _unfolded(level, x, f(_folded(level, x), *args, **kwargs))
    if x.ndim == batched - 1:
        return level.wrap(f(level.value(x), *args, **kwargs))
    return NotImplemented


@rule(embedding.embedding)
def _embedding(
    level: BatchLevel, f: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Any:
    if level.holds(weight):
        return NotImplemented
    return level.wrap(f(level.value(x), weight, *args, **kwargs))


# --- indexing -------------------------------------------------------------------------------------


def _is_advanced(part: Any) -> bool:
    """Whether an index part selects elements one by one."""
    return isinstance(part, (list, range, tuple)) or hasattr(part, "dtype")


def _together(parts: Any) -> bool:
    """Whether the element-wise parts of an index stand side by side, so that results do too."""
    if not any(_is_advanced(p) for p in parts):
        return True
    if any(isinstance(p, bool) or (hasattr(p, "dtype") and not p.ndim) for p in parts):
        return False
    places = [i for i, p in enumerate(parts) if _is_advanced(p) or type(p) is int]
    return places == list(range(places[0], places[-1] + 1))


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


@rule(indexing.slice_view)
def _slice_view(level: BatchLevel, f: Any, x: Tensor, index: Any, name: str) -> Tensor:
    return level.wrap(f(level.value(x), (slice(None), *index), name))


@rule(indexing._picked)
def _picked(level: BatchLevel, f: Any, kind: str, x: Tensor, index: Any) -> Any:
    parts = _parts(index)
    if any(_is_wrapped(p) for p in parts):
        return _by_batched_index(level, f, kind, x, parts)
    parsed, basic = indexing._parse(x, index)
    if basic or not _together(parsed):
        return NotImplemented
    return level.wrap(f(kind, level.value(x), (slice(None), *parts)))


def _is_wrapped(part: Any) -> bool:
    """Whether an index part is batched, here or further out."""
    return isinstance(part, Tensor) and part._wrapper is not None


def _by_batched_index(level: BatchLevel, f: Any, kind: str, x: Tensor, parts: Any) -> Any:
    """``x[..., i, j, ...]`` with a side-by-side run of index tensors, batched or not."""
    if any(_is_wrapped(p) and p.dtype.category == 0 for p in parts):
        _refuse_shapes("index with a bool tensor")
    places = [i for i, p in enumerate(parts) if isinstance(p, Tensor)]
    lead = parts[: places[0]]
    run = parts[places[0] : places[-1] + 1]
    if not all(isinstance(p, Tensor) and p.dtype.category == 1 for p in run):
        return NotImplemented
    rest = parts[places[-1] + 1 :]
    if not all(isinstance(p, slice) or p is None for p in (*lead, *rest)):
        return NotImplemented
    rank = max(p.ndim for p in run)
    indices = tuple([level.aligned(p, rank) for p in run])
    p = len(lead)
    if not level.holds(x):
        found = f(kind, x, (*lead, *indices, *rest))
        return level.wrap(shape.movedim(found, p, 0))
    examples = arange(level.size, device=x.device).reshape((-1, *[1] * rank))
    found = f(kind, level.value(x), (examples, *lead, *indices, *rest))
    if p:  # element-wise parts that stand apart come first
        inner = range(1, 1 + rank)
        found = shape.movedim(found, tuple(inner), tuple([d + p for d in inner]))
    return level.wrap(found)


def _refuse_shapes(what: str) -> None:
    raise RuntimeError(
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to "
        f"vmap over {what}; use torch.where-like masking (x.where(mask, 0)) instead."
    )


@rule(indexing.nonzero, indexing.masked_select)
def _dynamic(level: BatchLevel, f: Any, *args: Any, **kwargs: Any) -> None:
    _refuse_shapes(f.__name__)


@rule(indexing.getitem_parsed)
def _getitem_parsed(level: BatchLevel, f: Any, g: Tensor, index: Any) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    return level.wrap(f(level.value(g), (slice(None), *_parts(index))))


@rule(indexing.place)
def _place(level: BatchLevel, f: Any, values: Tensor, index: Any, wanted: Any) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    return level.wrap(f(level.value(values), (slice(None), *_parts(index)), (level.size, *wanted)))


@rule(indexing.with_values)
def _with_values(level: BatchLevel, f: Any, x: Tensor, index: Any, value: Tensor) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    spread = indexing._spread(value, indexing._selected_shape(x, index))
    return level.wrap(f(level.full(x), (slice(None), *_parts(index)), level.full(spread)))


@rule(indexing.setitem)
def _setitem(level: BatchLevel, f: Any, x: Tensor, index: Any, value: Any) -> Any:
    if not level.holds(x):
        level.write(x, value, "index_put_")
    return NotImplemented


@rule(indexing.gathered)
def _gathered(
    level: BatchLevel, f: Any, name: str, x: Tensor, dim: int, index: Tensor, keepdim: bool = True
) -> Any:
    if not x.ndim:
        return NotImplemented
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(name, level.full(x), place, level.full(index), keepdim))


@rule(indexing.scatter, index_add.scatter_add)
def _scatter(
    level: BatchLevel, f: Any, x: Tensor, dim: int, index: Tensor, src: Any = None, **options: Any
) -> Any:
    src = options.pop("value", None) if src is None else src
    if not x.ndim or (isinstance(src, Tensor) and src.ndim != x.ndim):
        return NotImplemented
    source = level.full(src) if isinstance(src, Tensor) else src
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(level.full(x), place, level.full(index), source, **options))


@rule(index_add.index_add)
def _index_add(
    level: BatchLevel, f: Any, x: Tensor, dim: int, index: Tensor, source: Tensor, **options: Any
) -> Any:
    if level.holds(index) or not x.ndim:
        return NotImplemented
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(level.full(x), place, index, level.full(source), **options))


@rule(indexing.argsort)
def _argsort(
    level: BatchLevel, f: Any, x: Tensor, dim: int = -1, *args: Any, **options: Any
) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, *args, **options))


# --- making tensors -------------------------------------------------------------------------------


@rule(creation.zeros_like, creation.ones_like, creation.full_like, creation.empty_like)
def _like(level: BatchLevel, f: Any, x: Tensor, *args: Any, **options: Any) -> Tensor:
    if options.pop("requires_grad", False):
        raise RuntimeError(
            "vmap: requires_grad=True makes a leaf inside a function that is being transformed; "
            "use lucid_gpu.func.grad instead"
        )
    return level.wrap(f(level.value(x), *args, **options))


@rule(random._coins)
def _coins(level: BatchLevel, f: Any, p: Tensor, sizes: Any, where: Any, generator: Any) -> Tensor:
    value = level.value(p).detach()
    if not bool(((value >= 0) & (value <= 1)).all()):
        raise RuntimeError(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli takes "
            "probabilities"
        )
    drawn: Tensor = random._uniform(sizes, value.dtype, where, generator) < p.detach()
    return drawn


@rule(elementwise._refuse_zero)
def _refuse_zero(level: BatchLevel, f: Any, *operands: Any) -> None:
    f(*[level.value(o) for o in operands])


# --- matrices -------------------------------------------------------------------------------------


@rule(inverse.inverse_of, determinant._determinant, determinant._signed_logarithm, cholesky._factor,
      qr.qr, lu.lu_factor_ex, lu.lu_unpack, svd.svd, svd.svdvals, svd.pinv, svd.matrix_rank,
      eigen.eigh, eigen.eigvalsh, eigen.eig, products.matrix_exp)  # fmt: skip
def _matrices(level: BatchLevel, f: Any, A: Tensor, *args: Any, **options: Any) -> Any:
    return level.wrap_all(f(level.value(A), *args, **options))


@rule(fourier.transformed, fourier.half_spectrum, fourier.from_half)
def _spectrum(level: BatchLevel, f: Any, x: Tensor, *args: Any) -> Any:
    return level.wrap(f(level.value(x), *args))


@rule(inverse.solved)
def _solved(level: BatchLevel, f: Any, A: Tensor, B: Tensor) -> Any:
    rank = max(A.ndim, B.ndim)
    X, numbers = f(level.aligned(A, rank), level.aligned(B, rank))
    return level.wrap(X), numbers


# --- installing -----------------------------------------------------------------------------------

_LOOPED = (
    scatter_reduce._joined,
    strides.as_strided,
    strides.restrided,
    windows._unfolded,
    windows._folded,
    pooling._put,
    pooling._take,
    pooling._mean,
    pooling._spread,
    embedding._take_rows,
    embedding._sum_rows,
    cross_entropy._pick,
    indexing._place_vjp,
    ctc.ctc_loss,
    dropout.dropout,
    softmax.softmax,
    softmax.log_softmax,
)


LATE = (cumulative, order, statistics)


def all_entries() -> list[Entry]:
    """An entry for every op that is not elementwise."""
    from lucid_gpu.func.random_rules import RANDOM, RandomEntry

    public = [
        inspect.unwrap(f)
        for module in (shape, reductions, cumsum, indexing, index_add, matmul, *LATE)
        for f in (*module.METHODS, *getattr(module, "FUNCTIONS", ()))
    ]
    functions = dict.fromkeys([*RULES, *public, *_LOOPED])
    plain = [f for f in functions if f not in RANDOM]
    return [
        *[Entry(f, RULES.get(f)) for f in plain],
        *[RandomEntry(f, one) for f, one in RANDOM.items()],
    ]


installed = Exchanged(all_entries)
