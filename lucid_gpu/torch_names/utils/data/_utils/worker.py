"""`torch.utils.data._utils.worker`: what packages seed workers of their own with."""

from __future__ import annotations

from lucid_gpu.utils.data.worker import WorkerInfo, get_worker_info
from lucid_gpu.utils.data.worker import numpy_seed as _generate_state

__all__ = ["WorkerInfo", "_generate_state", "get_worker_info"]
