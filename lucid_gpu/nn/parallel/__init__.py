"""Models over several devices and processes, under PyTorch's names."""

from typing import Any

from lucid_gpu.compat.module_names import imported
from lucid_gpu.nn.parallel.data_parallel import DataParallel
from lucid_gpu.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]


def __getattr__(name: str) -> Any:
    return imported(globals(), name)
