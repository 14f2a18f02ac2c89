"""Layers that resample signals, images and volumes."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """`functional.interpolate` as a layer.

    Parameters
    ----------
    size : int or tuple of int, optional
    scale_factor : float or tuple of float, optional
    mode : str
    align_corners, recompute_scale_factor : bool, optional
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple([float(f) for f in scale_factor])
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` by ``mode="nearest"``.

    Parameters
    ----------
    size : int or pair of int, optional
    scale_factor : float or pair of float, optional
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` by ``mode="bilinear"`` with corners aligned.

    Parameters
    ----------
    size : int or pair of int, optional
    scale_factor : float or pair of float, optional
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)
