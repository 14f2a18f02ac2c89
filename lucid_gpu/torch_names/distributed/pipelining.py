"""`torch.distributed.pipelining`: stages on several ranks, which refuse."""

from __future__ import annotations

from lucid_gpu.compat.refused import refused

_ABSENT = """PipelineStage Schedule1F1B ScheduleGPipe ScheduleInterleaved1F1B SplitPoint build_stage
    pipe_split pipeline"""
_INSTEAD = (
    "models are not cut into stages; send() and recv() move activations between ranks, and "
    "fully_shard(module) cuts parameters"
)
globals().update(
    {name: refused(f"distributed.pipelining.{name}", _INSTEAD) for name in _ABSENT.split()}
)
