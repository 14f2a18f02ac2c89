"""Datasets, samplers and loaders, under PyTorch's names."""

import os as _os
from typing import Any as _Any

from lucid_gpu.compat.module_names import imported as _imported
from lucid_gpu.utils.data.collate import default_collate, default_convert
from lucid_gpu.utils.data.dataloader import DataLoader
from lucid_gpu.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from lucid_gpu.utils.data.distributed import DistributedSampler
from lucid_gpu.utils.data.pinning import prefetch
from lucid_gpu.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from lucid_gpu.utils.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "prefetch",
    "random_split",
]

_BESIDE = _os.path.dirname(_os.path.dirname(__path__[0]))
__path__ = [*__path__, _os.path.join(_BESIDE, "torch_names", "utils", "data")]


def __getattr__(name: str) -> _Any:
    return _imported(globals(), name, modules=("_utils",))
