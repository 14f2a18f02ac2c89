"""Normalization within each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.group_norm import cross_map_norm
from lucid_gpu.tensor import Tensor

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    r"""``y = (x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimensions.

    The input and the result have shape (*, *normalized_shape).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Sizes of the dimensions, the last ones, that mean and variance are taken over.
    eps : float
    elementwise_affine : bool
        Whether there are a weight (initially ones) and a bias (zeros).
    bias : bool
    device, dtype : optional
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(sizes)
        self.eps, self.elementwise_affine = eps, elementwise_affine

        def parameter() -> Parameter:
            return Parameter(empty(self.normalized_shape, device=device, dtype=dtype))

        self.register_parameter("weight", parameter() if elementwise_affine else None)
        self.register_parameter("bias", parameter() if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Ones and zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    r"""``y = x / sqrt(mean(x^2) + eps) * weight`` over the last dimensions.

    The input and the result have shape (*, *normalized_shape).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Sizes of the dimensions, the last ones, that the mean is taken over.
    eps : float, optional
        By default ``finfo(input.dtype).eps``.
    elementwise_affine : bool
        Whether there is a weight (initially ones).
    device, dtype : optional
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(sizes)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = None
        if elementwise_affine:
            weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    r"""``y = (x - mean) / sqrt(variance + eps) * weight + bias`` over groups of channels.

    The input and the result have shape (n, num_channels, *).

    Parameters
    ----------
    num_groups : int
    num_channels : int
        A multiple of ``num_groups``, else ValueError.
    eps : float
    affine : bool
        Whether there are a weight (initially ones) and a bias (zeros), one for each channel.
    device, dtype : optional
    bias : bool
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"{type(self).__name__}: num_channels ({num_channels}) must be divisible by "
                f"num_groups ({num_groups})"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = Parameter(empty(num_channels, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Ones and zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    r"""``y = x / (k + alpha * mean(x^2))^beta``, the mean over neighboring channels.

    The input and the result have shape (n, c, *).

    Parameters
    ----------
    size : int
        How many channels.
    alpha, beta, k : float
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    r"""`LocalResponseNorm` of images, with the windows of PyTorch's class of that name.

    The first channel is part of every window, as there; the gradient is that of what is computed.

    Parameters
    ----------
    size : int
        How many channels.
    alpha, beta, k : float
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        return cross_map_norm(input, self.size, self.alpha, self.beta, self.k)
