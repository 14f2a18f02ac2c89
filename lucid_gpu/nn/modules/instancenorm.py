"""Normalization of each channel of each sample."""

from __future__ import annotations

import warnings
from inspect import cleandoc
from typing import Any

from lucid_gpu.compat.module_names import beside
from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.batchnorm import _NormBase
from lucid_gpu.tensor import Tensor

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    r"""``y = (x - mean) / sqrt(variance + eps) * weight + bias``, each sample's channel by itself.

    Parameters
    ----------
    num_features : int
        Channels, the dimension before the last ones.
    eps : float
    momentum : float or None
        The share of a new batch in the running figures.
    affine : bool
        Whether there are a weight (initially ones) and a bias (zeros).
    track_running_stats : bool
        Whether running figures follow those of the batches, and take their place in evaluation.
    device, dtype : optional
    bias : bool
    """

    rank: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self.rank + 1, self.rank + 2):
            raise ValueError(
                f"expected {self.rank + 1}D or {self.rank + 2}D input (got {input.dim()}D input)"
            )
        dim = input.dim() - self.rank - 1
        self._check_channels(input.shape[dim], dim)
        result = F.instance_norm(
            input if dim else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return result if dim else result.squeeze(0)

    def _get_no_batch_dim(self) -> int:
        """How many dimensions one sample has."""
        return self.rank + 1

    def _check_channels(self, channels: int, dim: int) -> None:
        if channels == self.num_features:
            return
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={dim} to match num_features ({self.num_features}), "
                f"but got: {channels}."
            )
        warnings.warn(
            f"input's size at dim={dim} does not match num_features. You can silence this warning "
            "by not passing in num_features, which is not used because affine=False",
            stacklevel=4,
        )


class InstanceNorm1d(_InstanceNorm):
    """Inputs are ``(n, c, l)`` or ``(c, l)``."""

    rank = 1


class InstanceNorm2d(_InstanceNorm):
    """Inputs are ``(n, c, h, w)`` or ``(c, h, w)``."""

    rank = 2


class InstanceNorm3d(_InstanceNorm):
    """Inputs are ``(n, c, d, h, w)`` or ``(c, d, h, w)``."""

    rank = 3


for _class in (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d):
    _formula, _, _settings = cleandoc(_InstanceNorm.__doc__ or "").partition("\n\n")
    _class.__doc__ = f"{_formula}\n\n{_class.__doc__}\n\n{_settings}"

# PyTorch has these here
__getattr__ = beside(
    globals(),
    {"lucid_gpu.nn.modules.lazy": "LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d"},
)
