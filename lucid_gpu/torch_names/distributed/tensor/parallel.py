"""`torch.distributed.tensor.parallel`: plans for layers that are cut over ranks, which refuse."""

from __future__ import annotations

from lucid_gpu.compat.refused import refused


class ParallelStyle:
    """The base of plans, for subclasses and `isinstance`; `parallelize_module` takes none."""


_ABSENT = """ColwiseParallel PrepareModuleInput PrepareModuleOutput RowwiseParallel SequenceParallel
    loss_parallel parallelize_module"""
_INSTEAD = (
    "layers are not cut over ranks; fully_shard(module) cuts their parameters, and "
    "DistributedDataParallel the batch"
)
globals().update(
    {name: refused(f"distributed.tensor.parallel.{name}", _INSTEAD) for name in _ABSENT.split()}
)
