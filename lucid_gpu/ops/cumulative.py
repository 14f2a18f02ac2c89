"""Running products and extrema, differences, and integrals by the trapezoidal rule.

The gradient of a running product is a linear recurrence, and so is that of a recurrence: with
one primitive, `recurrence`, they need no division and are right at zeros, at every order.
"""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import as_dtype, dtype
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.kernels import scans
from lucid_gpu.ops.arguments import in_float32, public
from lucid_gpu.ops.creation import full, ones_like
from lucid_gpu.ops.cumsum import _running_sum, cumsum, in_its_type, require_sums
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.gather import _gathered
from lucid_gpu.ops.in_place import alias_before
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.named_results import values_and_indices
from lucid_gpu.ops.record import keeping, record, was_replaced
from lucid_gpu.ops.reductions import along_dim, normalize_dim
from lucid_gpu.ops.shape import cat, flip, stack
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, apply, from_array


@op(autocast={"cuda": "float32"})
def cumprod(input: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor:
    """Products of all elements up to each, along a dimension.

    Parameters
    ----------
    input : Tensor, any shape
    dim : int
    dtype : dtype, optional
        Of the result; by default the input's, or int64 for integers and bools.

    Raises
    ------
    IndexError
        For a ``dim`` that there is not.
    NotImplementedError
        For bool as ``dtype``, unless the input has no dimensions or no elements.
    """
    to = input.dtype if input.dtype.category >= 2 else dt.int64
    to = to if dtype is None else as_dtype(dtype)
    require_sums("cumprod", input, to)
    input = input.to(to)
    dim = normalize_dim(dim, input.ndim)
    return _running_product(input, dim) if input.ndim and to is not dt.bool else input.clone()


@op
@lying(rule=row_major_order)
def _running_product(input: Tensor, dim: int) -> Tensor:
    array = scans.cumprod(input.array, dim, input.dtype, input.device)
    result: Tensor = record(
        "CumprodBackward0", array, (input,), _cumprod_vjp, (input,), input.dtype, True, dim=dim
    )
    return result


def _cumprod_vjp(node: Any, g: Tensor) -> Any:
    """``sum_j g[j] prod_(i <= j, i != k) x[i]``: what follows each factor, times what precedes."""
    x, y = node.saved_values
    if node.observed and x.numel() > 1 and not (x == 0).any():
        product = g * y.conj_physical()
        return (_running_sum(product, node.dim, g.dtype, True) / x.conj_physical(),)
    if node.observed or was_replaced(x):
        y = _running_product(x, node.dim)
    following = recurrence(_shifted(x.conj_physical(), node.dim, 0.0, True), g, node.dim, True)
    return (following * _shifted(y.conj_physical(), node.dim, 1.0, False),)


batching(_running_product)(along_dim)


def _shifted(input: Tensor, dim: int, edge: float, forwards: bool) -> Tensor:
    """The next element (or the one before) at each place; ``edge`` where there is none."""
    if not input.shape[dim]:
        return input
    rest = input.narrow(dim, 1 if forwards else 0, input.shape[dim] - 1)
    shape = tuple(1 if i == dim else n for i, n in enumerate(input.shape))
    end = input.new_full(shape, edge)
    return cat([rest, end] if forwards else [end, rest], dim)


def _products_of_others(input: Tensor, dim: int) -> Tensor:
    """Of all elements along a dimension but the one at each place: before it, times behind it."""
    wide = input.to(input.dtype.compute)
    before = _products_before(wide, dim)
    behind = _products_before(flip(wide, dim), dim)
    return (before * flip(behind, dim)).to(input.dtype)


def _products_before(input: Tensor, dim: int) -> Tensor:
    """Of the elements before each place; the last is in none, so that it may be infinite."""
    if input.shape[dim] < 2:
        return ones_like(input)
    rest = cumprod(input.narrow(dim, 0, input.shape[dim] - 1), dim)
    return cat([ones_like(input.narrow(dim, 0, 1)), rest], dim)


@op
def recurrence(a: Tensor, b: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """``h[i] = a[i] * h[i - 1] + b[i]``, with ``h[-1] = 0``; ``reverse`` runs from the end.

    Parameters
    ----------
    a, b : Tensor
        Of one shape and dtype.
    dim : int, not negative
    """
    array = scans.recurrence(a.array, b.array, dim, b.dtype, b.device, reverse)
    result: Tensor = record(
        "RecurrenceBackward0", array, (a, b), _recurrence_vjp, (a,), b.dtype, True,
        dim=dim, reverse=reverse,
    )  # fmt: skip
    return result


def _recurrence_vjp(node: Any, g: Tensor) -> Any:
    a, h = node.saved_values
    back = not node.reverse
    total = recurrence(_shifted(a.conj_physical(), node.dim, 0.0, back), g, node.dim, back)
    return total * _shifted(h.conj_physical(), node.dim, 0.0, node.reverse), total


@batching(recurrence)
def _recurrence_batched(level: Batch, f: Any, a: Tensor, b: Tensor, dim: int, *rest: Any) -> Any:
    return level.wrap(f(level.full(a), level.full(b), dim + 1, *rest))


@op
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """``log(cumsum(exp(input)))`` along a dimension, without overflow; of the input's shape.

    Those of complex numbers are added one after the other, which decides about multiples of 2 pi.
    NotImplementedError for integers and bool; IndexError for a ``dim`` that there is not.
    """
    if input.dtype.category < 2:
        raise dt.unimplemented("logcumsumexp", input.dtype)
    dim = normalize_dim(dim, input.ndim)
    if not input.ndim or not input.shape[dim]:
        return input.clone()
    if input.dtype.is_complex:
        array = _complex_sums(input.detach(), dim).array
    else:
        array = scans.logcumsumexp(input.array, dim, input.dtype, input.device)
    result: Tensor = record(
        "LogcumsumexpBackward0", array, (input,), _logcumsumexp_vjp, (input,), input.dtype, True,
        dim=dim,
    )  # fmt: skip
    return result


def _complex_sums(input: Tensor, dim: int) -> Tensor:
    sums, so_far = [], full((), complex(-math.inf), dtype=input.dtype, device=input.device)
    for x in input.unbind(dim):
        so_far = apply(TABLE["logaddexp"], x, so_far)
        sums.append(so_far)
    return stack(sums, dim)


def _logcumsumexp_vjp(node: Any, g: Tensor) -> Any:
    """``sum_(i >= k) g[i] exp(x[k] - y[i])``, summed from the end with factors of at most 1."""
    x, y = node.saved_values
    size = y.real if y.is_complex() else y
    y = where(size.isinf().logical_and(size < 0), 0.0, y)  # nothing but -inf so far
    following = _shifted(y, node.dim, math.inf, True)
    full = (y == following).logical_and(y.isinf())  # infinite from here on
    decay = (where(full, 0.0, y) - where(full, 0.0, following)).exp().conj_physical()
    return ((x - y).exp().conj_physical() * recurrence(decay, g, node.dim, True),)


@op
@keeping("input")
def cummax(input: Tensor, dim: int) -> Any:
    """The largest of the elements up to each, and where it is (the last of equals).

    NotImplementedError for complex tensors; IndexError for a ``dim`` that there is not.
    """
    return _running_extremum("maximum", "CummaxBackward0", input, dim)


@op
@keeping("input")
def cummin(input: Tensor, dim: int) -> Any:
    """The smallest of the elements up to each, and where it is (the last of equals).

    NotImplementedError for complex tensors; IndexError for a ``dim`` that there is not.
    """
    return _running_extremum("minimum", "CumminBackward0", input, dim)


def _running_extremum(row: str, name: str, input: Tensor, dim: int) -> Any:
    if input.dtype.is_complex:
        raise NotImplementedError(f"{row} is not implemented for complex tensors")
    if not input.ndim and dim not in (-1, 0):
        op = name.partition("Backward")[0].lower()
        raise IndexError(f"{op}(): Expected reduction dim -1 or 0 for scalar but got {dim}")
    dim = normalize_dim(dim, input.ndim)
    if not input.ndim:
        return values_and_indices(name, input.clone(), input.new_zeros((), dtype=dt.int64))
    places = scans.running_extremum(input.detach().array, dim, row, input.dtype, input.device)
    indices = from_array(places, dt.int64, input.device)
    return values_and_indices(name, _gathered(name, input, dim, indices, fault=None), indices)


batching(logcumsumexp, cummax, cummin)(along_dim)


# --- differences ----------------------------------------------------------------------------------


@op
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The ``n``-th differences of neighbors along a dimension.

    Parameters
    ----------
    n : int
        How often differences are taken; at most the dimension's size.
    prepend, append : Tensor, optional
        Put before and after the input first.

    Raises
    ------
    RuntimeError
        For 0-d tensors, negative ``n``, and what is put there of another shape.
    IndexError
        For a ``dim`` that there is not.
    """
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if not n:
        return input.clone()
    for other in (prepend, append):
        if other is not None and other.ndim != input.ndim:
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        along = normalize_dim(dim, input.ndim)
        if other is not None and any(
            a != b for i, (a, b) in enumerate(zip(other.shape, input.shape)) if i != along
        ):
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input "
                f"except along the differencing dimension; input.size() = {list(input.shape)}, "
                f"tensor.size() = {list(other.shape)}"
            )
    parts = [t for t in (prepend, input, append) if t is not None]
    result = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, result.shape[dim])):
        result = _neighbors(result, dim)
    return result


def _neighbors(input: Tensor, dim: int) -> Tensor:
    before, after = _halves(input, dim)
    return after.logical_xor(before) if input.dtype is dt.bool else after - before


def _halves(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """All but the last, and all but the first, along a dimension."""
    rest = input.shape[dim] - 1
    return input.narrow(dim, 0, rest), input.narrow(dim, 1, rest)


@op
@in_float32
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral along a dimension by the trapezoidal rule.

    Parameters
    ----------
    y : Tensor
        The integrand.
    x : Tensor, optional
        Where it was taken: one vector, or one for each; else neighbors are ``dx`` apart.

    Raises
    ------
    RuntimeError
        For bool, and where ``x`` and ``y`` differ in length along ``dim``.
    IndexError
        For a ``dim`` that there is not.
    """
    return _areas("trapezoid", y, x, dx, dim).sum(dim)


@op
def trapz(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """Alias of `trapezoid`."""
    return trapezoid(y, x, dx=dx, dim=dim)


@op
@in_float32
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1
) -> Tensor:
    """`trapezoid` up to each element but the first.

    RuntimeError for bool, and where ``x`` and ``y`` differ in length along ``dim``.
    """
    return cumsum(_areas("cumulative_trapezoid", y, x, dx, dim), dim)


def _areas(name: str, y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    if dt.bool in [t.dtype for t in (y, x) if isinstance(t, Tensor)]:
        raise RuntimeError(
            f"{name}: received a bool input for `y` or `x`, but bool is not supported"
        )
    dim = normalize_dim(dim, y.ndim)
    nothing = name == "trapezoid" and not y.shape[dim]  # whose sum is 0 whatever x is
    if x is not None and x.ndim == 1 and len(x) != y.shape[dim] and not nothing:
        raise RuntimeError(
            f"{name}: There must be one `x` value for each sample point, got {len(x)} for "
            f"{y.shape[dim]}"
        )
    if not y.shape[dim]:
        return y / 1
    if x is not None:
        if x.ndim == 1:
            x = x.reshape([-1 if i == dim else 1 for i in range(y.ndim)])
        dx = _neighbors(x, dim - y.ndim)
    before, after = _halves(y, dim)
    return (before + after) * dx / 2


@op
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Derivatives of samples by second-order differences, along each dimension.

    Parameters
    ----------
    input : Tensor
    spacing : number, Tensor or sequence of them
        The distance of neighbors, or coordinates; one for all dimensions, or one for each.
    dim : int or sequence of int, optional
        All, if left out.
    edge_order : int
        1 or 2: the order of the one-sided differences at both ends.

    Returns
    -------
    tuple of Tensor
        One for each dimension, of the input's shape.

    Raises
    ------
    RuntimeError
        For another ``edge_order``, bool and uint8, a dimension given twice or too short, and a
        ``spacing`` that does not have one entry a dimension.
    IndexError
        For a ``dim`` that there is not.
    """
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if input.dtype in (dt.bool, dt.uint8):
        raise RuntimeError(f"torch.gradient does not support {input.dtype.name} input.")
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = [normalize_dim(d, input.ndim) for d in dims]
    if len({*axes}) < len(axes):
        twice = next(d for i, d in enumerate(axes) if d in axes[:i])
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    if len(steps) != len(axes):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or a list of length "
            f"{len(axes)}, but got a list of length {len(steps)}"
        )
    for d in axes:
        if input.shape[d] <= edge_order:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1, got "
                f"{input.shape[d]} along dimension {d}"
            )
    if input.dtype.category < 2:
        input = input.to(dt.get_default_dtype())
    return tuple([_slopes(input, d, s, edge_order) for d, s in zip(axes, steps, strict=True)])


def _slopes(y: Tensor, dim: int, spacing: Any, order: int) -> Tensor:
    """Interior points by the parabola through three, the ends by one line or parabola.

    Each is a sum of values with weights, as in NumPy: beside an infinity differences of slopes
    would be NaN.
    """
    extent = y.shape[dim]

    def at(start: int, count: int = 1) -> Tensor:
        return y.narrow(dim, start, count)

    if not (isinstance(spacing, Tensor) and spacing.ndim):
        ends = [(at(1) - at(0)) / spacing, (at(extent - 1) - at(extent - 2)) / spacing]
        if order == 2:
            ends = [
                (at(0) * -1.5 + at(1) * 2 - at(2) * 0.5) / spacing,
                (at(extent - 3) * 0.5 - at(extent - 2) * 2 + at(extent - 1) * 1.5) / spacing,
            ]
        middle = (at(2, extent - 2) - at(0, extent - 2)) / (2 * spacing) if extent > 2 else None
    else:
        coordinates = spacing.reshape([-1 if i == dim else 1 for i in range(y.ndim)])
        steps = _neighbors(coordinates, dim)
        rises = _neighbors(y, dim) / steps
        ends = [rises.narrow(dim, 0, 1), rises.narrow(dim, extent - 2, 1)]
        middle = None
        if extent > 2:
            before, after = _halves(steps, dim)
            both = before + after
            first, last = before * both, after * both
            middle = (
                at(0, extent - 2) * (-after / first)
                + at(1, extent - 2) * ((after - before) / (before * after))
                + at(2, extent - 2) * (before / last)
            )
        if order == 2:
            d, e = steps.narrow(dim, 0, 1), steps.narrow(dim, 1, 1)
            ends[0] = (
                at(0) * (-(2 * d + e) / (d * (d + e)))
                + at(1) * ((d + e) / (d * e))
                - at(2) * (d / (e * (d + e)))
            )
            d, e = steps.narrow(dim, extent - 3, 1), steps.narrow(dim, extent - 2, 1)
            ends[1] = (
                at(extent - 3) * (e / (d * (d + e)))
                - at(extent - 2) * ((d + e) / (d * e))
                + at(extent - 1) * ((2 * e + d) / (e * (d + e)))
            )
    return cat([ends[0], ends[1]] if middle is None else [ends[0], middle, ends[1]], dim)


_OPS: tuple[Any, ...] = (cumprod, logcumsumexp, cummax, cummin, diff)
_PUBLIC = tuple([public(op) for op in _OPS])
METHODS = (*_PUBLIC, in_its_type(_PUBLIC[0], alias_before), _products_of_others)
FUNCTIONS = (*_PUBLIC, trapezoid, trapz, cumulative_trapezoid, gradient)
