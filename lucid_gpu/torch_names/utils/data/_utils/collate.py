"""`torch.utils.data._utils.collate`: what datasets of packages make batches with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lucid_gpu.tensor import Tensor
from lucid_gpu.utils.data.collate import default_collate, default_convert

__all__ = [
    "collate_tensor_fn",
    "default_collate",
    "default_convert",
    "np_str_obj_array_pattern",
]

np_str_obj_array_pattern = re.compile(r"[SaUO]")


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: Any = None) -> Any:
    """The tensors of a batch as one."""
    return default_collate(batch)
