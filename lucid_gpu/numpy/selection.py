"""Elements chosen by masks, positions and order, under NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors, inexact
from lucid_gpu.numpy.reductions import NOT_GIVEN
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.numpy.shapes import axis_of
from lucid_gpu.tensor import Tensor

__all__ = ["angle", "choose", "clip", "compress", "diff", "ediff1d", "extract", "fix", "imag"]
__all__ += ["interp", "nan_to_num", "partition", "piecewise", "real"]
__all__ += ["real_if_close", "select", "sinc", "sort", "take", "take_along_axis", "unwrap", "where"]

# --- by masks and positions ----------------------------------------------------------------------


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """`numpy.where`."""
    if x is None and y is None:
        return np.nonzero(condition)
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    weak = [isinstance(v, (bool, int, float, complex)) for v in (x, y)]
    condition, x_, y_ = as_tensors((condition, x, y))
    if True in weak and False in weak:  # a number takes the other's type where that holds it
        array, number = (y_, x) if weak[0] else (x_, y)
        d = dt.from_numpy_dtype(np.result_type(array.dtype.numpy, number))
        x_, y_ = x_.to(d), y_.to(d)
    else:
        x_, y_ = alike(x_, y_)
    return x_.where(condition.to(dt.bool), y_)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """`numpy.select`: of the first condition that holds."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    weak = isinstance(default, (bool, int, float)) and len(choicelist) > 0
    *choices, selected = [*alike(*choicelist), default] if weak else alike(*choicelist, default)
    if weak and not choices:
        selected = as_tensor(default)
    for condition, choice in zip(condlist[::-1], choices[::-1], strict=True):
        selected = where(condition, choice, selected)
    return selected


@takes_out
def choose(a: Any, choices: Sequence[Any], out: Any = None, mode: str = "raise") -> Tensor:
    """`numpy.choose`."""
    a, *options = as_tensors((a, *choices))
    a = within(a.to(dt.int64), len(options), mode)
    options = alike(*options)
    return select(
        [a == k for k in range(len(options))], options, (options[0] * 0).to(options[0].dtype)
    )


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tensor:
    """`numpy.piecewise`; every function is called on all of ``x``."""
    x = as_tensor(x)
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    if len(funclist) - len(conditions) not in (0, 1):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or "
            f"{len(conditions) + 1} functions are expected"
        )
    values = [f(x, *args, **kw) if callable(f) else f for f in funclist]
    rest = values.pop() if len(values) > len(conditions) else 0.0
    return select(conditions[::-1], values[::-1], rest).to(x.dtype)


@takes_out
def clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    **kwargs: Any,
) -> Tensor:
    """`numpy.clip`."""
    if not (a_min is a_max is None or min is max is None):
        raise ValueError("Passing `min` or `max` keyword argument beside `a_min` and `a_max`")
    low, high = min if a_min is None else a_min, max if a_max is None else a_max
    clipped: Any = as_tensor(a)
    for bound, nearer in ((low, np.maximum), (high, np.minimum)):
        if bound is not None:
            clipped = nearer(clipped, bound, **kwargs)
    return clipped if low is not None or high is not None else np.positive(clipped, **kwargs)


def within(positions: Tensor, n: int, mode: str) -> Tensor:
    """Positions in a range of n, by NumPy's modes.

    Raises
    ------
    IndexError
        For one outside of it, in the mode ``"raise"``.
    """
    if mode == "wrap":
        return positions % n
    if mode == "clip":
        return positions.clamp(0, n - 1)
    if positions.numel() and bool(((positions < -n) | (positions >= n)).any()):
        raise IndexError(f"index out of bounds for axis with size {n}")
    return positions.where(positions >= 0, positions + n)


@takes_out
def take(
    a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Tensor:
    """`numpy.take`."""
    a, indices = as_tensors((a, indices))
    a, axis = (a.reshape(-1), 0) if axis is None or not a.ndim else (a, axis_of(axis, a.ndim))
    positions = within(indices.to(dt.int64), a.shape[axis], mode)
    shape = (*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :])
    return a.index_select(axis, positions.reshape(-1)).reshape(shape)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tensor:
    """`numpy.take_along_axis`."""
    arr, indices = as_tensors((arr, indices))
    if axis is None and indices.ndim != 1:
        raise ValueError("when axis=None, `indices` must have a single dimension.")
    arr, axis = (arr.reshape(-1), 0) if axis is None else (arr, axis_of(axis, arr.ndim))
    positions = within(indices.to(dt.int64), arr.shape[axis], "raise")
    shape = list(np.broadcast_shapes(along(arr, axis), along(positions, axis)))
    wide = arr.expand([arr.shape[k] if k == axis else n for k, n in enumerate(shape)])
    positions = positions.expand(
        [positions.shape[k] if k == axis else n for k, n in enumerate(shape)]
    )
    return wide.gather(axis, positions)


def along(a: Tensor, axis: int) -> tuple[int, ...]:
    """A shape that is one along an axis."""
    return tuple([1 if k == axis else n for k, n in enumerate(a.shape)])


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """`numpy.compress`."""
    (positions,) = np.nonzero(as_tensor(condition, a if isinstance(a, Tensor) else None))
    return take(a, positions, axis, out)


def extract(condition: Any, arr: Any) -> Any:
    """`numpy.extract`."""
    return compress(np.ravel(condition), arr)


# --- by order ------------------------------------------------------------------------------------


def sort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    descending: Any = None,
) -> Tensor:
    """`numpy.sort`."""
    if descending is not None and descending is not NOT_GIVEN and descending:
        raise TypeError(
            "numpy.sort: descending= is not taken of tensors; say np.flip(np.sort(a, axis), axis)"
        )
    if order is not None:
        raise TypeError("numpy.sort: order= is of structured arrays, which tensors are not")
    a = as_tensor(a)
    a, axis = (a.reshape(-1), 0) if axis is None else (a, axis_of(axis, a.ndim))
    if a.dtype.category == 3:  # by the real parts, then the imaginary ones
        return take_along_axis(a, np.argsort(a.detach(), axis), axis)
    values: Tensor = a.sort(axis)[0]
    return values


def partition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None
) -> Tensor:
    """`numpy.partition`, which a sorted tensor is too."""
    return sort(a, axis, order=order)


# --- of neighbors -------------------------------------------------------------------------------


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """`numpy.diff`."""
    a = as_tensor(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    if n == 0:
        return a
    axis = axis_of(axis, a.ndim)

    def edge(value: Any) -> list[Any]:
        if value is None or value is NOT_GIVEN:
            return []
        value = as_tensor(value, a)
        return [value.expand(along(a, axis)) if value.ndim == 0 else value]

    a = np.concatenate([*edge(prepend), a, *edge(append)], axis)
    for _ in range(n):
        count = max(a.shape[axis] - 1, 0)
        later, sooner = a.narrow(axis, a.shape[axis] - count, count), a.narrow(axis, 0, count)
        a = later ^ sooner if a.dtype == dt.bool else later - sooner
    return a


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """`numpy.ediff1d`."""
    ary = as_tensor(ary).reshape(-1)
    edges = [None if e is None else as_tensor(e, ary).reshape(-1) for e in (to_begin, to_end)]
    parts = [edges[0], diff(ary), edges[1]]
    differences: Any = np.concatenate([p.to(ary.dtype) for p in parts if p is not None])
    return differences


def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Tensor:
    """`numpy.unwrap`."""
    p = inexact(as_tensor(p))
    axis = axis_of(axis, p.ndim)
    step = diff(p, axis=axis).detach()
    bound = period / 2 if discont is None else max(discont, period / 2)
    whole = (step + period / 2).remainder(period) - period / 2
    whole = whole.where((whole != -period / 2) | (step <= 0), period / 2)
    fix = (whole - step).where(step.abs() >= bound, 0.0).cumsum(axis)
    start = p.narrow(axis, 0, min(p.shape[axis], 1)).detach() * 0
    unwrapped: Any = p + np.concatenate([start, fix], axis)
    return unwrapped


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Tensor:
    """`numpy.interp`: differentiable by all three."""
    x, xp, fp = (inexact(t) for t in as_tensors((x, xp, fp)))
    x, xp, fp = alike(x, xp, fp)
    if xp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length.")
    if period is not None:
        x, xp = x % period, xp % period
        order = xp.detach().argsort()
        xp, fp = xp[order], fp[order]
        xp = np.concatenate((xp[-1:] - period, xp, xp[:1] + period))
        fp = np.concatenate((fp[-1:], fp, fp[:1]))
    if xp.shape[0] == 1:
        interpolated = fp.expand(x.shape) + x * 0
    else:
        at = np.searchsorted(xp, x, side="right")
        low = as_tensor(at).clamp(1, xp.shape[0] - 1) - 1
        x0, x1, f0, f1 = xp[low], xp[low + 1], fp[low], fp[low + 1]
        interpolated = f0 + (x - x0) * ((f1 - f0) / (x1 - x0))
    below, above = fp[0] if left is None else left, fp[-1] if right is None else right
    result: Tensor = where(x < xp[0], below, where(x > xp[-1], above, interpolated))
    return result


# --- of numbers ----------------------------------------------------------------------------------


def real(val: Any) -> Tensor:
    """`numpy.real`."""
    val = as_tensor(val)
    return val.real if val.dtype.category == 3 else val


def imag(val: Any) -> Tensor:
    """`numpy.imag`."""
    val = as_tensor(val)
    return val.imag if val.dtype.category == 3 else (val * 0).to(val.dtype)


def angle(z: Any, deg: bool = False) -> Tensor:
    """`numpy.angle`."""
    angles = inexact(as_tensor(z)).angle()
    return angles * (180 / np.pi) if deg else angles


def real_if_close(a: Any, tol: float = 100) -> Tensor:
    """`numpy.real_if_close`."""
    a = as_tensor(a)
    if a.dtype.category != 3:
        return a
    bound = tol * float(np.finfo(a.dtype.numpy).eps) if tol > 1 else tol
    return a.real if bool((a.imag.abs() < bound).all()) else a


def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Tensor:
    """`numpy.nan_to_num`; with ``copy=False`` written into ``x``."""
    x = as_tensor(x)
    replaced = x.nan_to_num(nan, posinf, neginf)
    return replaced if copy else x.copy_(replaced)


@takes_out
def fix(x: Any, out: Any = None) -> Tensor:
    """`numpy.fix`."""
    truncated: Any = np.trunc(as_tensor(x))
    return truncated


def sinc(x: Any) -> Tensor:
    """`numpy.sinc`."""
    return inexact(as_tensor(x)).sinc()
