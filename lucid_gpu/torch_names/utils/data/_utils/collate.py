"""`torch.utils.data._utils.collate`: what datasets of packages make batches with."""

from __future__ import annotations

import re

from lucid_gpu.utils.data.collate import (
    collate,
    collate_float_fn,
    collate_int_fn,
    collate_numpy_array_fn,
    collate_str_fn,
    collate_tensor_fn,
    default_collate,
    default_collate_fn_map,
    default_convert,
)

__all__ = [
    "collate",
    "collate_float_fn",
    "collate_int_fn",
    "collate_numpy_array_fn",
    "collate_numpy_scalar_fn",
    "collate_str_fn",
    "collate_tensor_fn",
    "default_collate",
    "default_collate_fn_map",
    "default_convert",
    "np_str_obj_array_pattern",
]

collate_numpy_scalar_fn = collate_numpy_array_fn
np_str_obj_array_pattern = re.compile(r"[SaUO]")
