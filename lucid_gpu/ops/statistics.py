"""Quantiles, counts in bins, moments that ignore NaN, covariances, and closeness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import xp_of
from lucid_gpu.dtypes import dtype
from lucid_gpu.ops import reductions
from lucid_gpu.ops.arguments import in_float32, public
from lucid_gpu.ops.creation import arange, linspace
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.gather import gather
from lucid_gpu.ops.linalg.matrices import conj
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.order import searchsorted
from lucid_gpu.ops.record import keeping, keeps, record
from lucid_gpu.ops.reductions import Dims, normalize_dim
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.shape import owned
from lucid_gpu.ops.sorting import sort
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor, from_array

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@op(autocast={"cpu": "float32"})
@owned
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The values below which a share ``q`` of the elements lies; NaN where there is one.

    Parameters
    ----------
    q : float or Tensor of shape (k,)
        Between 0 and 1. Several give the result a first dimension of their own.
    dim : int, optional
        All elements, if left out.
    interpolation : str
        Between two elements: linear, lower, higher, midpoint or nearest.

    Raises
    ------
    RuntimeError
        For a ``q`` outside ``[0, 1]`` or of another type, empty tensors, and another interpolation.
    IndexError
        For a ``dim`` that there is not.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@op(autocast={"cpu": "float32"})
@owned
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile` of the elements that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile(
    name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    shares = _checked_shares(name, input, q, interpolation)
    rank = input.ndim
    if dim is None:
        axis, values, frame = 0, input.reshape(-1), (1,) * rank
    else:
        axis = normalize_dim(dim, rank)
        values = input.movedim(axis, -1) if rank else input.reshape(1)
        frame = reductions.kept_shape(input.shape, (axis,)) if rank else ()
    values = sort(values, -1).values
    counts = values.isnan().logical_not().sum(-1, keepdim=True)
    last = counts - 1 if name == "nanquantile" else values.shape[-1] - 1
    positions = shares.reshape(-1) * last  # (..., k)
    if name == "quantile":
        full = counts == values.shape[-1]
        positions = where(full, positions, float(values.shape[-1] - 1))
    quantiles = _between(values, positions.clamp(min=0).to(values.dtype), interpolation)
    quantiles = quantiles.movedim(-1, 0)
    frame = (
        frame
        if keepdim
        else reductions.dropped_shape(frame, (axis,) if dim is not None else range(rank))
    )
    return quantiles.reshape((*shares.shape, *frame))


def _between(values: Tensor, positions: Tensor, interpolation: str) -> Tensor:
    """The elements at places that need not be whole."""
    low, high = positions.floor(), positions.ceil()
    if interpolation == "nearest":
        low = high = positions.round()
    if interpolation in ("lower", "nearest"):
        return gather(values, -1, low.long())
    above = gather(values, -1, high.long())
    if interpolation == "higher":
        return above
    below = gather(values, -1, low.long())
    weight = positions - low
    same = (below == above).logical_and(below.isinf())  # whose difference is NaN
    if interpolation == "midpoint":
        return where(same, below, above - 0.5 * (above - below))
    near = weight < 0.5  # from the nearer one, as in `lerp`: it decides beside infinities
    moved = where(near, below, above) + where(near, weight, weight - 1) * (above - below)
    return where(same, below, moved)


def _checked_shares(name: str, input: Tensor, q: Any, interpolation: str) -> Tensor:
    if input.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input.dtype not in (dt.float32, dt.float64):
        raise RuntimeError(
            f"{name}() input tensor must be either float or double dtype, got {input.dtype.name}"
        )
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        return input.new_full((), q)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, got shape {list(q.shape)}")
    if q.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}() q tensor must be same dtype as the input tensor, got {q.dtype.name} and "
            f"{input.dtype.name}"
        )
    if not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


# --- moments --------------------------------------------------------------------------------------


@op
@keeping("input")
def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    """The sum of the elements that are not NaN; parameters and shapes as in `sum`.

    RuntimeError for complex tensors.
    """
    if input.dtype.is_complex:
        raise RuntimeError("nansum does not support complex inputs")
    if input.dtype.category == 2:
        input = where(input.isnan(), 0.0, input)
    return reductions.sum(input, dim, keepdim, dtype=dtype)


@op
@keeping("input")
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    """The mean of the elements that are not NaN; parameters and shapes as in `mean`.

    RuntimeError for integers and bool.
    """
    if input.dtype.category < 2:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype.name}"
        )
    known = input.detach().isnan().logical_not()
    d = input.dtype if dtype is None else dt.as_dtype(dtype)
    total = nansum(input.to(d), dim, keepdim, dtype=d.compute)
    return (total / reductions.sum(known, dim, keepdim)).to(d)


def _with_its_mean(
    spread: Callable[..., Tensor],
) -> Callable[..., tuple[Tensor, Tensor]]:
    name = spread.__name__
    title = f"{name.capitalize()}MeanBackward0"

    @op
    def both(
        input: Tensor,
        dim: Dims = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        return _with_mean(title, spread, input, dim, unbiased, keepdim, correction)

    doc = f"`{name}` and `mean`; parameters, shapes and errors as there."
    return named(both, f"{name}_mean", doc)


std_mean, var_mean = _with_its_mean(reductions.std), _with_its_mean(reductions.var)


def _with_mean(
    name: str,
    spread: Any,
    input: Tensor,
    dim: Any,
    unbiased: Any,
    keepdim: bool,
    correction: Any,
) -> tuple[Tensor, Tensor]:
    """Both, by one node."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    first = spread(input, dim, unbiased, keepdim, correction=correction)
    both = first, reductions.mean(input, dim, keepdim)
    if input._wrapper is not None or not any(t.requires_grad for t in both):
        return both
    arrays = tuple([t.array for t in both])
    joined: tuple[Tensor, Tensor] = record(
        name, arrays, both, _joined_vjp, dtype=None if both[1].is_complex() else first.dtype,
        takes_none=True,
    )  # fmt: skip
    keeps(joined[0], input, output=spread is reductions.std)
    return joined


def _joined_vjp(node: Any, *cotangents: Tensor | None) -> Any:
    """None for the spread where it is not used: 0 times its gradient is NaN for one element."""
    return cotangents


@op
@in_float32
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariances of variables.

    Parameters
    ----------
    input : Tensor, shape (variables, observations) or (observations,)
    correction : int
        Subtracted from the sum of weights.
    fweights : Tensor of integers, shape (observations,)
        How often each was observed.
    aweights : Tensor, shape (observations,)
        How much each observation counts.

    Returns
    -------
    Tensor, shape (variables, variables) or ()

    Raises
    ------
    RuntimeError
        For more than two dimensions, bool, and weights that are negative, of another length or, as
        ``fweights``, no integers.
    """
    if input.ndim > 2:
        raise RuntimeError(
            "cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    x = input.reshape((1, -1)) if input.ndim < 2 else input
    if x.dtype is dt.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    if x.dtype.category < 2:
        x = x.to(dt.get_default_dtype())
    weights = _weights(x, fweights, aweights)
    if weights is None:
        total: Any = x.shape[1]
        norm: Any = max(total - correction, 0)
        centered = x - x.mean(1, True)
        scaled = centered
    else:
        total = weights.sum()
        norm = total - correction
        if aweights is not None:
            norm = total - correction * (weights * aweights).sum() / total
        norm = norm.clamp(min=0)
        centered = x - (x * weights).sum(1, True) / total
        scaled = centered * weights
    result: Tensor = (scaled @ conj(centered).mT / norm).squeeze()
    return result


def _weights(x: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> Tensor | None:
    for name, weight in (("fweights", fweights), ("aweights", aweights)):
        if weight is None:
            continue
        if weight.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
                f"{weight.ndim} dimensions"
            )
        category, kind = (1, "integral") if weight is fweights else (2, "floating point")
        if weight.dtype.category != category:
            raise RuntimeError(
                f"cov(): expected {name} to have {kind} dtype but got {name} with "
                f"{weight.dtype.name} dtype"
            )
        if weight.numel() != x.shape[1]:
            raise RuntimeError(
                f"cov(): expected {name} to have the same numel as there are observations in the "
                f"input but got {weight.numel()} != {x.shape[1]}"
            )
        if bool((weight < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
    weights = [w for w in (fweights, aweights) if w is not None]
    if not weights:
        return None
    return math.prod(weights[1:], start=weights[0])


@op
@in_float32
def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlation coefficients of variables, shape (variables, observations).

    RuntimeError for more than two dimensions.
    """
    if input.ndim > 2:
        raise RuntimeError(
            "corrcoef(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    c = cov(input)
    if not c.ndim:
        return c / c
    own = arange(c.shape[0], device=c.device)
    variances = c[own, own]
    deviations = (variances.real if c.dtype.is_complex else variances).sqrt()
    c = c / deviations[:, None] / deviations
    return c if c.dtype.is_complex else c.clamp(-1, 1)


@op(autocast={"cuda": "float32"})
@lying(rule=row_major_order)
@in_float32
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The input; slices of a dimension with a ``p``-norm above ``maxnorm`` are made that long.

    RuntimeError for fewer than two dimensions, and a ``p`` that is not above 0; IndexError for a
    ``dim`` that there is not.

    The result has its shape.
    """
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if input.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    dim = normalize_dim(dim, input.ndim)
    others = tuple(d for d in range(input.ndim) if d != dim)
    long = reductions.norm(input.detach(), p, others, True) > maxnorm
    length = reductions.norm(where(long, input, 1.0), p, others, True)  # 0 times NaN is NaN
    return input * where(long, maxnorm / (length + 1e-7), 1.0)


# --- counts ---------------------------------------------------------------------------------------


@op
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on occurs, or the sum of its weights.

    Parameters
    ----------
    input : Tensor of integers, shape (n,)
        None negative.
    weights : Tensor, shape (n,), optional
        Added up in an order that only depends on the input.
    minlength : int
        The length of the result at least.

    Returns
    -------
    Tensor of int64; with weights of float32 if they are, else float64

    Raises
    ------
    RuntimeError
        For another rank, negative numbers, weights of another length, and a negative ``minlength``.
    NotImplementedError
        For types that are not integers.
    """
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input.dtype.category != 1:
        raise dt.unimplemented("bincount", input.dtype)
    if input.ndim != 1 or bool((input < 0).any()):
        raise RuntimeError(
            "bincount only supports 1-d non-negative integral inputs, got shape "
            f"{list(input.shape)} of {input.dtype.name}"
        )
    if weights is not None and tuple(weights.shape) != tuple(input.shape):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    xp = xp_of(input)
    places = input.array.astype("int64", copy=False)
    if weights is None or not len(places):
        counts = xp.bincount(places, minlength=minlength) if len(places) else xp.zeros(minlength)
        return from_array(counts.astype("int64"), dt.int64, input.device)
    length = max(minlength, int(input.max().item()) + 1)
    return _weighed(from_array(places, dt.int64, input.device), weights, length)


def _weighed(places: Tensor, weights: Tensor, length: int) -> Tensor:
    d = dt.float32 if weights.dtype is dt.float32 else dt.float64
    totals: Tensor = weights.new_zeros(length, dtype=d)
    return totals.index_add(0, places, weights.detach().to(d))


@op
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of ``bins`` equal parts of [min, max]; of input's type.

    Without ``min`` and ``max`` the extrema of the input are taken.

    RuntimeError for ``bins`` not above 0, and a range that is not finite or ends before it begins;
    NotImplementedError for types that are not floating point.
    """
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    if input.dtype.category != 2:
        raise dt.unimplemented("histogram_cpu", input.dtype)
    if input.is_meta:
        return input.new_empty((bins,))
    edges = _edges(input, bins, None if min == max == 0 else (min, max), "torch.histc", 1)
    return _in_bins(input, edges, None)


@result_of("histogram")
class Histogram(NamedTuple):
    """What `histogram` gives."""

    hist: Tensor
    bin_edges: Tensor


@op
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """How many elements lie between edges; the last part holds its upper edge, too.

    Parameters
    ----------
    bins : int or Tensor
        The number of equal parts, or their edges in ascending order.
    range : (float, float), optional
        Where the parts begin and end; by default the input's extrema.
    weight : Tensor of input's shape, optional
        How much each element counts.
    density : bool
        Divide by the total and the parts' widths.

    Raises
    ------
    RuntimeError
        For ``bins`` not above 0, of another type or no vector, a range that is not finite or
        ends before it begins, and weights of another number or type.
    NotImplementedError
        For types that are not floating point.
    """
    if input.dtype.category != 2:
        raise dt.unimplemented("histogram", input.dtype)
    edges = bins
    if not isinstance(bins, Tensor):
        if bins <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins}")
        edges = _edges(input, bins, range, "torch.histogram", 0.5)
    elif bins.dtype is not input.dtype:
        raise RuntimeError(
            "torch.histogram(): input tensor and bins tensors should have the same dtype, but got "
            f"{input.dtype} and {bins.dtype}"
        )
    else:
        _require_edges(bins)
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            "torch.histogram(): input tensor and weight tensor should have the same dtype, but got "
            f"{input.dtype} and {weight.dtype}"
        )
    if weight is not None and weight.numel() != input.numel():
        raise RuntimeError(
            "torch.histogram(): if weight tensor is provided it should have the same shape as the "
            f"input tensor, but got input with shape {list(input.shape)} and weight with shape "
            f"{list(weight.shape)}"
        )
    counts = _in_bins(input, edges, weight)
    if density:
        counts = counts / counts.sum() / (edges[1:] - edges[:-1])
    return Histogram(counts, edges)


def _edges(input: Tensor, bins: int, limits: Any, name: str, margin: float) -> Tensor:
    """Of equal parts; ``margin`` is how far those around a single value reach."""
    if limits is None:
        empty = not input.numel()
        low, high = (
            (0.5 - margin, 0.5 + margin) if empty else [f().item() for f in (input.min, input.max)]
        )
    else:
        low, high = limits
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{name}: range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError(f"{name}: max must be larger than min, got [{low:g}, {high:g}]")
    if low == high:
        low, high = low - margin, high + margin
    return linspace(low, high, bins + 1, dtype=input.dtype, device=input.device)


def _require_edges(edges: Tensor) -> None:
    if edges.ndim != 1:
        raise RuntimeError(
            "torch.histogram(): bins tensor should have one dimension, but got "
            f"{edges.ndim} dimensions"
        )
    if not edges.numel():
        raise RuntimeError("torch.histogram(): bins tensor should have at least 1 element")


def _in_bins(input: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
    numbers, bins = _bin_numbers(input.detach().reshape(-1), edges), edges.numel() - 1
    return _counted(numbers, bins, weight, input.dtype)


def _bin_numbers(flat: Tensor, edges: Tensor) -> Tensor:
    """Between which edges each element lies: for what lies outside, one bin more."""
    bins = edges.numel() - 1
    bin_indices = searchsorted(edges, flat.contiguous(), right=True) - 1
    bin_indices = where(flat == edges[-1], bins - 1, bin_indices)
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    numbers: Tensor = where(inside, bin_indices, bins)
    return numbers


def _counted(numbers: Tensor, bins: int, weight: Tensor | None, dtype: Any) -> Tensor:
    """How often each bin but the one beyond the last occurs, or what its elements weigh."""
    if weight is None:
        return bincount(numbers, minlength=bins + 1)[:bins].to(dtype)
    return _weighed(numbers, weight.reshape(-1), bins + 1)[:bins].to(dtype)


@result_of("histogramdd")
class HistogramDD(NamedTuple):
    """What `histogramdd` gives."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


@op
def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """How many points lie in each box of a grid; the last boxes hold their upper edges, too.

    Parameters
    ----------
    input : Tensor, shape (..., n)
        Points in ``n`` dimensions.
    bins : int, or n ints, or n Tensors
        The numbers of equal parts, or their edges in ascending order.
    range : 2 n floats, optional
        Where the parts of each dimension begin and end; by default the extrema.
    weight : Tensor, shape (...), optional
        How much each point counts.
    density : bool
        Divide by the total and the volumes of the boxes.

    Raises
    ------
    RuntimeError
        For ``bins``, ``range`` and ``weight`` that do not fit the input.
    NotImplementedError
        For types that are not floating point.
    """
    name = "torch.histogramdd"
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input tensor should have at least 2 dimensions")
    if input.dtype.category != 2:
        raise dt.unimplemented("histogramdd", input.dtype)
    rank = input.shape[-1]
    each = [bins] * rank if isinstance(bins, int) else list(bins)
    if len(each) != rank:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    if range is not None and len(range) != 2 * rank:
        raise RuntimeError(
            f"{name}: for a {rank}-dimensional histogram range should have {2 * rank} elements, "
            f"but got {len(range)}"
        )
    if weight is not None and tuple(weight.shape) != tuple(input.shape[:-1]):
        raise RuntimeError(
            f"{name}: if weight tensor is provided it should have the same shape as the input "
            "tensor excluding its innermost dimension, but got input with shape "
            f"{list(input.shape)} and weight with shape {list(weight.shape)}"
        )
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}: if weight tensor is provided, input tensor and weight tensor should have the "
            f"same dtype, but got input({input.dtype.name}), and weight({weight.dtype.name})"
        )
    columns = input.detach().reshape(-1, rank).unbind(1)
    edges = [_edges_of(d, *pair, range) for d, pair in enumerate(zip(columns, each, strict=True))]
    numbers: Any = 0
    outside: Any = False
    for column, along in zip(columns, edges, strict=True):
        parts = along.numel() - 1
        number = _bin_numbers(column, along)
        outside = (number == parts).logical_or(outside)
        numbers = numbers * parts + number
    shape = [along.numel() - 1 for along in edges]
    boxes = math.prod(shape)
    hist = _counted(where(outside, boxes, numbers), boxes, weight, input.dtype).reshape(shape)
    if density:
        hist = hist / hist.sum()
        for d, along in enumerate(edges):
            hist = hist / (along[1:] - along[:-1]).reshape([-1] + [1] * (rank - 1 - d))
    return HistogramDD(hist, tuple(edges))


def _edges_of(d: int, column: Tensor, bins: Any, range: Sequence[float] | None) -> Tensor:
    """The edges along one dimension."""
    if isinstance(bins, Tensor):
        if bins.dtype is not column.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but "
                f"got input with dtype {column.dtype.name} and bins for dimension {d} with dtype "
                f"{bins.dtype.name}"
            )
        return bins
    if bins <= 0:
        raise RuntimeError(
            f"torch.histogramdd(): bins must be > 0, but got {bins} for dimension {d}"
        )
    limits = None if range is None else range[2 * d : 2 * d + 2]
    return _edges(column, bins, limits, "torch.histogramdd", 0.5)


# --- closeness ------------------------------------------------------------------------------------


@op
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Elementwise: within ``atol + rtol * |other|``; infinities are close to themselves only.

    RuntimeError for two types, and a negative ``rtol`` or ``atol``; TypeError for what is no
    number.
    """
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype.type_name} did not match {other.dtype.type_name}")
    _require_tolerances(rtol, atol)
    if rtol < 0 or atol < 0:
        name, value = ("rtol", rtol) if rtol < 0 else ("atol", atol)
        raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value:g}")
    near = input == other
    if equal_nan:
        near = near.logical_or(input.isnan().logical_and(other.isnan()))
    if input.dtype is dt.bool or (rtol == 0 and atol == 0):
        return near
    a, b = (input, other) if input.dtype.category > 1 else (input.double(), other.double())
    distance = (a - b).abs()
    return near.logical_or(distance.isfinite().logical_and(distance <= atol + (rtol * b).abs()))


def _require_tolerances(*given: Any) -> None:
    for position, (name, value) in enumerate(zip(("rtol", "atol"), given, strict=True), 3):
        if isinstance(value, Tensor):
            number = not value.ndim and not value.requires_grad
        else:
            number = hasattr(value, "__float__")
        if not number:
            raise TypeError(
                f"isclose(): argument '{name}' (position {position}) must be float, not "
                f"{type(value).__name__}"
            )


@op
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close to each other, as `isclose` has it."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@op
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shape and all elements are equal."""
    return input.shape == other.shape and bool((input == other).all())


_OPS: tuple[Any, ...] = (
    quantile, nanquantile, nansum, nanmean, cov, corrcoef, renorm, bincount, histc, histogram,
    isclose, allclose, equal,
)  # fmt: skip
METHODS = tuple([public(op) for op in _OPS])
FUNCTIONS = (*METHODS, public(std_mean), public(var_mean), histogramdd)
