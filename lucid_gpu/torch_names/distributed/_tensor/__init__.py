"""`torch.distributed._tensor`: where PyTorch kept `torch.distributed.tensor` first."""

from __future__ import annotations

from lucid_gpu.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard"]
