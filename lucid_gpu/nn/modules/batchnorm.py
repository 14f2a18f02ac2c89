"""Normalization over the batch."""

from __future__ import annotations

import inspect
from typing import Any

from lucid_gpu.compat.module_names import beside
from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty, ones, zeros
from lucid_gpu.tensor import Tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]


class _NormBase(Module):
    """Weight, bias, running figures and settings of a normalization of channels."""

    _version = 2  # the first had no num_batches_tracked

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        made = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            parameter = Parameter(empty(num_features, **made)) if wanted else None
            self.register_parameter(name, parameter)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **made) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **made) if tracked else None)
        count = zeros((), dtype=int, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Ones and zeros, and no batches seen."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        key, count = f"{prefix}num_batches_tracked", self.num_batches_tracked
        if local_metadata.get("version", 1) < 2 and count is not None and key not in state_dict:
            state_dict[key] = count
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """``y = (x - mean) / sqrt(variance + eps) * weight + bias`` for each channel.

    In training, mean and variance are those of the batch, and running averages of both are updated.
    In evaluation they are the running averages.

    Parameters
    ----------
    num_features : int
        Channels, the second dimension of the input.
    eps : float
    momentum : float or None
        The weight of a new batch in the running averages; None gives every batch the same weight.
    affine : bool
        Whether there are a weight (initially ones) and a bias (initially zeros).
    track_running_stats : bool
        Whether there are running averages; without them evaluation uses the batch too.
    device, dtype : optional
    bias : bool
        Whether there is a bias, if ``affine``.
    """

    ranks: tuple[int, ...]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "ranks" in vars(cls):  # not in a subclass that a user writes
            formula, _, settings = inspect.cleandoc(_BatchNorm.__doc__ or "").partition("\n\n")
            cls.__doc__ = f"{formula}\n\n{inspect.cleandoc(cls.__doc__ or '')}\n\n{settings}"

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        update = self.training and self.track_running_stats
        result = F.batch_norm(
            input,
            self.running_mean if update or not self.training else None,
            self.running_var if update or not self.training else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            self._share() if update else 0.0,
            self.eps,
        )
        if update:
            self.num_batches_tracked.add_(1)
        return result

    def _check_input_dim(self, input: Tensor) -> None:
        """ValueError for an input of too few or many dimensions; subclasses may take others."""
        if input.dim() not in self.ranks:
            expected = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(f"expected {expected} input (got {input.dim()}D input)")

    def _share(self) -> float:
        """Of the next batch in the running figures."""
        if self.momentum is None:
            return 1.0 / (float(self.num_batches_tracked) + 1.0)
        return self.momentum


class BatchNorm1d(_BatchNorm):
    """The input and the result have shape (n, c) or (n, c, l); ValueError for another rank."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """The input and the result have shape (n, c, h, w); ValueError for another rank."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """The input and the result have shape (n, c, d, h, w); ValueError for another rank."""

    ranks = (5,)


# PyTorch has these here
__getattr__ = beside(
    globals(),
    {
        "lucid_gpu.nn.modules.lazy": "_LazyNormBase LazyBatchNorm1d LazyBatchNorm2d "
        "LazyBatchNorm3d",
        "lucid_gpu.nn.modules.sync_batchnorm": "SyncBatchNorm",
    },
)
