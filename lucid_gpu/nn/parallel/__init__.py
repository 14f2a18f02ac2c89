"""Models over several devices and processes, under PyTorch's names."""

import os as _os
from typing import Any

from lucid_gpu.compat.module_names import imported
from lucid_gpu.nn.parallel.data_parallel import DataParallel, data_parallel
from lucid_gpu.nn.parallel.distributed import DistributedDataParallel
from lucid_gpu.nn.parallel.parallel_apply import parallel_apply
from lucid_gpu.nn.parallel.replicate import replicate
from lucid_gpu.nn.parallel.scatter_gather import gather, scatter

_BESIDE = _os.path.dirname(_os.path.dirname(_os.path.dirname(__file__)))
__path__ = [*__path__, _os.path.join(_BESIDE, "torch_names", "nn", "parallel")]

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]


def __getattr__(name: str) -> Any:
    return imported(globals(), name)
