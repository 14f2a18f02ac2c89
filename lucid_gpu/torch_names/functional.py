"""`torch.functional`: functions that are also `torch`'s."""

from __future__ import annotations

import importlib
from typing import Any

from lucid_gpu.compat.module_names import imported

__all__ = [
    *("atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes"),
    *("broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft", "lu"),
    *("meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique"),
    *("unique_consecutive", "unravel_index"),
]


def __getattr__(name: str) -> Any:
    if name == "F":
        return importlib.import_module("lucid_gpu.nn.functional")
    return imported(globals(), name, dict.fromkeys(__all__, "lucid_gpu"))
