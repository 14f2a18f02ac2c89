"""`torch.distributed.tensor.placement_types`: how tensors lie on a mesh of ranks."""

from __future__ import annotations

from lucid_gpu.distributed.tensor import Partial, Placement, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class _StridedShard(Shard):
    """Rows that several meshes share in turn: for `isinstance`; making one refuses."""

    def __init__(self, dim: int, *, split_factor: int) -> None:
        raise NotImplementedError(
            f"_StridedShard(dim={dim}, split_factor={split_factor}): ranks hold rows that follow "
            "each other; write Shard(0)"
        )
