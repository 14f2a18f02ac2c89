"""`make_tensor`: random numbers to test with."""

from __future__ import annotations

from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import as_dtype
from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.random import rand, randint
from lucid_gpu.ops.shape import clone
from lucid_gpu.tensor import Tensor


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of uniform random numbers from ``[low, high)``.

    Parameters
    ----------
    *shape : int or a sequence of int
    low, high : float, optional
        By default [-9, 9) for floats and [-9, 10) for integers ([0, 10) for uint8, 0 and 1 for
        bools).
    noncontiguous : bool
        Lay it out with gaps; at least two elements then.
    exclude_zero : bool
        Replace zeros by the smallest positive number (1 for integers).
    memory_format : memory_format, optional
        How it lies in memory, such as `channels_last`; not with ``noncontiguous``.

    Raises
    ------
    ValueError
        For an empty range, integers with ``requires_grad``, and both layouts.
    """
    extents = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    size = tuple(int(n) for n in extents)
    d = as_dtype(dtype)
    bottom, top = _bounds(d, low, high)
    if not bottom < top:
        raise ValueError(f"make_tensor: `low` must be less than `high`, but got {bottom} >= {top}")
    if requires_grad and d.category < 2:
        raise ValueError(
            f"make_tensor: requires_grad must be False for integral dtype, but got {d}"
        )
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "make_tensor: the parameters `noncontiguous` and `memory_format` are mutually "
            f"exclusive, but got {noncontiguous=} and {memory_format=}"
        )
    made = _numbers(size, d, device, bottom, top)
    if exclude_zero:
        made = made.where(made != 0, _smallest(d))
    if noncontiguous and made.numel() > 1:
        gaps = zeros((*size, 2), dtype=d, device=made.device)
        gaps[..., 0] = made
        made = gaps[..., 0].detach()
    elif memory_format is not None:
        made = clone(made, memory_format=memory_format)
    return made._mark() if requires_grad else made


def _bounds(d: dt.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    if d.category == 0:
        usual = (0, 2)
    elif d.category == 1:
        usual = (0 if d is dt.uint8 else -9, 10)
    else:
        usual = (-9, 9)
    return usual[0] if low is None else low, usual[1] if high is None else high


def _numbers(size: tuple[int, ...], d: dt.dtype, device: Any, low: float, high: float) -> Tensor:
    if d.category < 2:
        return randint(int(low), int(high), size, device=device).to(d)
    parts = [
        rand(size, dtype=dt.float64, device=device) * (high - low) + low
        for _ in range(d.category - 1)
    ]
    return (parts[0] if len(parts) == 1 else parts[0] + parts[1] * 1j).to(d)


def _smallest(d: dt.dtype) -> Any:
    """The smallest positive normal number of a type; 1 for integers."""
    if d.category < 2:
        return 1
    return {2: 6.1e-05, 4: 1.1754943508222875e-38}.get(d.itemsize, 2.2250738585072014e-308)
