"""``utils.dlpack``: memory exchanged with other libraries."""

from __future__ import annotations

from lucid_gpu.ops.dlpack import from_dlpack as from_dlpack
from lucid_gpu.ops.dlpack import to_dlpack as to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
