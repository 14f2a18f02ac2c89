"""`torch.distributed._tensor.placement_types`: how a tensor lies on ranks."""

from lucid_gpu.distributed.tensor import Partial, Placement, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]
