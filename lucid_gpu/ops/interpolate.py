"""Images of another size: one linear map for each axis, whose adjoint is a map of the same kind."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import xp_of
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.kernels.resampling import Axis, Band, area, band, resampled
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import channels_order, lying
from lucid_gpu.ops.record import leads_back, record, ties
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

_AXES = {"linear": 1, "bilinear": 2, "trilinear": 3}
_MODES = {
    "nearest": "nearest", "nearest-exact": "nearest-exact", "linear": "linear",
    "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic", "lanczos": "lanczos",
    "area": "area",
}  # fmt: skip


@op(autocast={"cuda": "float32"})
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: Truth = None,
    antialias: bool = False,
) -> Tensor:
    """Signals, images or volumes resampled to another size.

    Parameters
    ----------
    input : Tensor, shape (n, c, d1), (n, c, d1, d2) or (n, c, d1, d2, d3)
    size : int or sequence of int, optional
        Of the output's d1, d2, d3.
    scale_factor : float or sequence of float, optional
        What sizes are multiplied by; either this or ``size`` is given.
    mode : str
        ``"nearest"``, ``"nearest-exact"``, ``"area"`` of any; ``"linear"`` of signals,
        ``"bilinear"`` and ``"bicubic"`` of images, ``"trilinear"`` of volumes;
        ``"lanczos"`` of images with ``antialias``.
    align_corners : bool, optional
        Of linear and cubic modes: whether the centers of the corner pixels stay where they are.
    recompute_scale_factor : bool, optional
        Take the scale of the sizes, which are whole numbers, and not ``scale_factor``.
    antialias : bool
        Of bilinear and bicubic: average over as many pixels as one new pixel covers.

    Returns
    -------
    Tensor, of input's dtype; 16-bit floats are computed in float32

    Raises
    ------
    ValueError, NotImplementedError, RuntimeError, TypeError
        For settings that do not fit the input or one another.
    """
    require_tensor("interpolate", "input", 1, input)
    axes = input.ndim - 2
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | "
            "bilinear | bicubic | trilinear"
        )
    sizes, factors = _sizes(input, size, scale_factor, recompute_scale_factor)
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and axes == 2):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a 4-D tensor as input"
        )
    flat = mode in ("bicubic", "lanczos")
    if mode not in _MODES or axes not in (1, 2, 3) or (flat and axes != 2):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | "
            f"lanczos | area | nearest-exact (got {mode})"
        )
    if axes != _AXES.get(mode, axes):
        raise NotImplementedError(
            f"Got {input.ndim}D input, but {mode} mode needs {_AXES[mode] + 2}D input"
        )
    return _resized(input, sizes, factors, mode, bool(align_corners), antialias)


def _sizes(
    input: Tensor, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float | None]]:
    """The size of each axis, and the scale it is to be resampled with (None: that of the sizes)."""
    own = [int(n) for n in input.shape[2:]]
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        sizes = list(size) if isinstance(size, Sequence) else [size] * len(own)
        if len(sizes) != len(own):
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input "
                f"with spatial dimensions of {own} and output size of {size}. Please provide input "
                "tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) "
                "format."
            )
        if not all(_whole(n) for n in sizes):
            raise TypeError(
                "interpolate(): expected size to be one of int or Tuple[int] or Tuple[int, int] or "
                f"Tuple[int, int, int], but got size with types {[type(n) for n in sizes]}"
            )
        return [int(n) for n in sizes], [None] * len(own)
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    scales = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor] * len(own)
    if len(scales) != len(own):
        raise ValueError(
            "Input and scale_factor must have the same number of spatial dimensions, but got input "
            f"with spatial dimensions of {own} and scale_factor of shape {scale_factor}. Please "
            "provide input tensor in (N, C, d1, d2, ...,dK) format and scale_factor in "
            "(s1, s2, ...,sK) format."
        )
    factors = [float(f) for f in scales]
    sizes = [math.floor(n * f) for n, f in zip(own, factors, strict=True)]
    return sizes, [None] * len(own) if recompute else list(factors)


def _whole(n: Any) -> bool:
    if isinstance(n, Tensor):
        return not (n.is_floating_point() or n.is_complex())
    return hasattr(n, "__index__")


def _resized(
    input: Tensor,
    sizes: Sequence[int],
    factors: Sequence[float | None],
    mode: str,
    aligned: bool,
    antialias: bool,
) -> Tensor:
    own = tuple(input.shape[2:])
    if max(sizes) > sys.maxsize:
        raise RuntimeError(f"interpolate(): an output of {sizes} has more elements than memory")
    if not all(own) or not all(n > 0 for n in sizes):
        raise RuntimeError(
            "Input and output sizes should be greater than 0, but got input "
            f"({', '.join(map(str, own))}) and output ({', '.join(map(str, sizes))})"
        )
    if not input.shape[1] and input.ndim > 3:
        raise RuntimeError(
            f"Non-empty {input.ndim}D data tensor expected but got a tensor with sizes "
            f"{list(input.shape)}"
        )
    images = input.dtype is dt.uint8 and mode in ("bilinear", "bicubic", "lanczos")
    if not (images or input.is_floating_point() or (input.dtype is dt.uint8 and "nearest" in mode)):
        raise dt.unimplemented(f"interpolate ({mode})", input.dtype)
    wide = images or input.dtype is dt.float64
    # which of PyTorch's kernels keep an axis whose size stays as it is, whatever the factor says
    copies = antialias or images or _MODES[mode] == "linear"
    if mode == "nearest":
        copies = input.ndim == 4 or (input.ndim == 5 and channels_order(input) is not None)
    axes = [
        Axis(_MODES[mode], n, out, factor, aligned, antialias, wide, copies)
        for n, out, factor in zip(own, sizes, factors, strict=True)
    ]
    bands = [area(axis.size, axis.out) if mode == "area" else band(axis) for axis in axes]
    result: Tensor = _resample_bytes(input, bands) if images else resample(input, bands)
    if input.ndim == 5 and (mode == "area" or "nearest" in mode):
        result = leads_back(result, (0, 1, 2, 3, 4))
    if mode != "area":
        return result
    # an adaptive mean, of which PyTorch's has other rules than those of the rest
    result = ties(result)
    return lay(result, None) if input.ndim == 5 else leads_back(result, channels_order(input))


@op
@lying("input", rule=channels_order)
def _resample_bytes(input: Tensor, bands: Sequence[Band]) -> Tensor:
    """Images of uint8 resampled in fixed point, the last axis first, as PyTorch does."""
    result = input
    for axis, matrix in reversed([*enumerate(bands, -len(bands))]):
        if not matrix.is_identity():
            whole, bits = matrix.in_fixed_point
            floats = result.to(dt.float64).array
            sums = run_quietly(resampled, floats, axis, whole, xp_of(input))
            rounded = (from_array(sums, dt.float64, input.device) / 2**bits + 0.5).floor()
            result = rounded.clamp(0, 255).to(dt.uint8)
    return result.clone() if result is input else result


batching(_resample_bytes)(on_value)


@op
@lying("input", rule=channels_order)
def resample(input: Tensor, bands: Sequence[Band]) -> Tensor:
    """The last axes resampled, each by its band; 16-bit floats are rounded once, at the end."""
    steps = [(i, b) for i, b in enumerate(bands, -len(bands)) if not b.is_identity()]
    if not steps:
        return input.clone()
    array, own = input.array, input.dtype
    narrow = own.compute is not own and not all(b.copies for _, b in steps)
    if narrow:
        array = from_array(array, own, input.device).to(own.compute).array
    for axis, matrix in steps:
        array = run_quietly(resampled, array, axis, matrix, xp_of(input))
    if narrow:
        array = from_array(array, own.compute, input.device).to(own).array
    result: Tensor = record(
        "UpsampleBackward0", array, (input,), _resample_vjp, dtype=own, bands=bands
    )
    return result


def _resample_vjp(node: Any, g: Tensor) -> tuple[Tensor]:
    return (resample(g, [b.transposed for b in node.bands]),)


batching(resample)(on_value)


@op(autocast={"cuda": "float32"})
def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name."""
    _warn_of_name("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@op
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with ``mode="nearest"``."""
    _warn_of_name("upsample_nearest")
    return interpolate(input, size, scale_factor)


@op
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with ``mode="bilinear"`` and corners aligned."""
    _warn_of_name("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


def _warn_of_name(name: str) -> None:
    warn_user(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
    )
