"""Normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.autograd import Function
from lucid_gpu.nn.modules.batchnorm import _BatchNorm
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["SyncBatchNorm"]


class _Summed(Function):
    """The sum over all ranks. Each rank's result depends on all inputs, so gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        result = x.clone()
        dist.all_reduce(result, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Summed.apply(grad, ctx.group), None


class SyncBatchNorm(_BatchNorm):
    r"""``y = (x - mean) / sqrt(variance + eps) * weight + bias`` over the batches of all ranks.

    In training, mean and variance are those of all ranks' batches together, which may differ in
    size; so are the gradients. With one rank, and in evaluation, it acts like
    `BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d`. Gradients of weight and bias are those of this
    rank; `DistributedDataParallel` averages them.

    Parameters
    ----------
    num_features : int
        Channels, the second dimension of inputs ``(n, c, ...)``.
    eps : float
    momentum : float or None
    affine : bool
    track_running_stats : bool
    process_group : ProcessGroup, optional
        The default group by default.
    device, dtype : optional
    bias : bool
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """The input, each channel normalized.

        Raises
        ------
        ValueError
            In training, where the batches of all ranks have one value per channel.
        """
        batch = self.training or self.running_mean is None
        if not batch or not dist.is_initialized() or dist.get_world_size(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        axes = [d for d in range(input.dim()) if d != 1]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        # 16-bit inputs are summed in float32, as batch_norm does.
        x = input.float() if input.dtype.itemsize == 2 else input
        count = x.numel() // x.shape[1] if x.shape[1] else 0
        totals = x.new_tensor([count])
        dist.all_reduce(totals, group=self.process_group)
        n = totals.item()
        if n <= 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got input size "
                f"{input.shape}"
            )
        mean = _Summed.apply(x.sum(axes), self.process_group) / n
        centered = x - mean.view(shape)
        variance = _Summed.apply(centered.square().sum(axes), self.process_group) / n
        if self.training and self.track_running_stats:
            self._follow(mean.detach(), variance.detach() * (n / (n - 1)))
        result = centered * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            result = result * self.weight.view(shape)
        if self.bias is not None:
            result = result + self.bias.view(shape)
        return result.to(input.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)
        with no_grad():
            self.running_mean.mul_(1 - share).add_(mean.to(self.running_mean.dtype), alpha=share)
            self.running_var.mul_(1 - share).add_(variance.to(self.running_var.dtype), alpha=share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module, each of its `BatchNorm` layers one of these with the same state."""
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group, bias=module.bias is not None,
            )  # fmt: skip
            converted._parameters.update(module._parameters)
            converted._buffers.update(module._buffers)
            converted.training = module.training
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
