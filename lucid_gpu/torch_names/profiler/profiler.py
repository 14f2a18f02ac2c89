"""`torch.profiler.profiler`: PyTorch's file of `profile`."""

from __future__ import annotations

from lucid_gpu.profiler import (
    ExecutionTraceObserver,
    ProfilerAction,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from lucid_gpu.profiler import profile as _KinetoProfile

__all__ = [
    "ExecutionTraceObserver",
    "ProfilerAction",
    "_KinetoProfile",
    "profile",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
