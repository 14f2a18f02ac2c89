"""`torch.functional`: functions that are also `torch`'s."""

from __future__ import annotations

from typing import Any

import lucid_gpu

__all__ = [
    *("atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes"),
    *("broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft", "lu"),
    *("meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique"),
    *("unique_consecutive", "unravel_index"),
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(lucid_gpu, name)
    raise AttributeError(f"module 'lucid_gpu.functional' has no attribute {name!r}")
