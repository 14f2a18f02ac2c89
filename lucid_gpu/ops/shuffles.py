"""Pixels moved between space and channels: reshapes and a permutation."""

from __future__ import annotations

from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.memory_formats import channels_order, lying
from lucid_gpu.ops.shape import clone, owned
from lucid_gpu.storage import contiguous_format
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

__all__ = ["channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def _check(name: str, setting: str, input: Tensor, factor: int) -> None:
    require_tensor(name, "input", 1, input)
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} "
            "dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {setting}, but got {factor}")


@op
@owned
@lying("input", rule=channels_order)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """``(*, c r^2, h, w)`` to ``(*, c, h r, w r)``: channels become pixels.

    Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
    Convolutional Neural Network" (2016).

    Parameters
    ----------
    input : Tensor, shape (*, c * upscale_factor ** 2, h, w)
    upscale_factor : int

    Raises
    ------
    RuntimeError
        For fewer than three dimensions, channels that the factor's square does not divide, and a
        factor that is not above 0.
    """
    _check("pixel_shuffle", "upscale_factor", input, upscale_factor)
    *lead, channels, h, w = input.shape
    r = upscale_factor
    if channels % r**2:
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r**2}"
        )
    c, k = channels // r**2, len(lead)
    order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
    apart: Tensor = input.reshape(*lead, c, r, r, h, w).permute(order)
    # a factor of 1 gives no view either
    return clone(apart, memory_format=contiguous_format).reshape(*lead, c, h * r, w * r)


@op
@owned
@lying("input", rule=channels_order)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """``(*, c, h r, w r)`` to ``(*, c r^2, h, w)``: the inverse of `pixel_shuffle`.

    Parameters
    ----------
    input : Tensor, shape (*, c, h * downscale_factor, w * downscale_factor)
    downscale_factor : int

    Raises
    ------
    RuntimeError
        For fewer than three dimensions, sides that the factor does not divide, and a factor that is
        not above 0.
    """
    _check("pixel_unshuffle", "downscale_factor", input, downscale_factor)
    *lead, c, height, width = input.shape
    r, k = downscale_factor, len(lead)
    for role, n, dim in (("height", height, -2), ("width", width, -1)):
        if n % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {role} to be divisible by downscale_factor, but "
                f"input.size({dim})={n} is not divisible by {r}"
            )
    if not input.numel():
        return input.clone()  # of its own shape, as in PyTorch
    h, w = height // r, width // r
    order = (*range(k), k, k + 2, k + 4, k + 1, k + 3)
    apart: Tensor = input.reshape(*lead, c, h, r, w, r).permute(order)
    return clone(apart, memory_format=contiguous_format).reshape(*lead, c * r * r, h, w)


@op
@owned
@lying("input", rule=channels_order)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of ``groups`` groups dealt out in turn; Zhang et al., "ShuffleNet" (2018).

    Parameters
    ----------
    input : Tensor, shape (n, c, *)
    groups : int
        A divisor of c.

    Raises
    ------
    RuntimeError
        For fewer than three dimensions, and ``groups`` that do not divide the channels.
    """
    require_tensor("channel_shuffle", "input", 1, input)
    if input.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    n, c, *window = input.shape
    if c % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
        )
    apart: Tensor = input.reshape(n, groups, c // groups, *window).transpose(1, 2)
    return clone(apart, memory_format=contiguous_format).reshape(n, c, *window)
