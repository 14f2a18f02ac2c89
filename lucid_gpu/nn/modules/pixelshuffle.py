"""Pixels moved between space and channels."""

from __future__ import annotations

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """``(*, c r^2, h, w)`` to ``(*, c, h r, w r)``: sub-pixel convolution's last step.

    Parameters
    ----------
    upscale_factor : int
        ``r``.
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """``(*, c, h r, w r)`` to ``(*, c r^2, h, w)``: the inverse of `PixelShuffle`.

    Parameters
    ----------
    downscale_factor : int
        ``r``.
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
