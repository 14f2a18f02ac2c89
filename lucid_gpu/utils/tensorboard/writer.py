"""`torch.utils.tensorboard.writer`: where PyTorch keeps `SummaryWriter`."""

from __future__ import annotations

from lucid_gpu.utils.tensorboard import SummaryWriter

__all__ = ["SummaryWriter"]
