"""`torch.nn.modules._functions`: what PyTorch's layers call by ``apply``."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.autograd.function import Function
from lucid_gpu.ops.group_norm import cross_map_norm
from lucid_gpu.tensor import Tensor

__all__ = ["BackwardHookFunction", "CrossMapLRN2d", "SyncBatchNorm"]


class CrossMapLRN2d:
    """The function of `nn.CrossMapLRN2d`."""

    @staticmethod
    def apply(
        input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1
    ) -> Tensor:
        """The input over a power of what stands beside it in other channels."""
        return cross_map_norm(input, size, alpha, beta, k)


class SyncBatchNorm:
    """PyTorch's function of `nn.SyncBatchNorm`, whose inner steps are not those of this package."""

    @staticmethod
    def apply(*args: Any) -> NoReturn:
        """Refuse with a NotImplementedError: call the layer."""
        raise NotImplementedError(
            "nn.modules._functions.SyncBatchNorm: call nn.SyncBatchNorm, the layer"
        )


class BackwardHookFunction(Function):
    """Tensors as they are, and a node of the graph for hooks."""

    @staticmethod
    def forward(ctx: Any, *args: Tensor) -> tuple[Tensor, ...]:
        """The tensors."""
        ctx.mark_non_differentiable(*[t for t in args if not t.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Their gradients."""
        return grads
