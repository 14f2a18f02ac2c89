"""What ran, how long it took, how many bytes it moved.

`record` lists the kernels of a block; `profile` times them too, by events on a GPU, and gives a
table and a trace for Chrome; `record_function` names parts of a program in it; `emit_nvtx` shows
both to NVIDIA's profilers. Nothing is noted while none of them is open. `planning` counts by line
what was planned and compiled, `planned` in all.
"""

from __future__ import annotations

import os as _os

from lucid_gpu.fusion.explain import Kernel
from lucid_gpu.profiler.averages import Average, EventList
from lucid_gpu.profiler.bandwidth import copy_bandwidth
from lucid_gpu.profiler.events import DeviceType
from lucid_gpu.profiler.log import Log, record
from lucid_gpu.profiler.planning import (
    Planned,
    PlanningLog,
    PlanningWarning,
    planned,
    planned_bytes,
    planning,
)
from lucid_gpu.profiler.ranges import emit_nvtx, record_function
from lucid_gpu.profiler.schedule import ProfilerAction, schedule, tensorboard_trace_handler
from lucid_gpu.profiler.timeline import (
    ExecutionTraceObserver,
    ProfilerActivity,
    Span,
    profile,
    supported_activities,
)

__path__ = [*__path__, _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "profiler")]

__all__ = [
    "Average",
    "DeviceType",
    "EventList",
    "ExecutionTraceObserver",
    "Kernel",
    "Log",
    "Planned",
    "PlanningLog",
    "PlanningWarning",
    "ProfilerAction",
    "ProfilerActivity",
    "Span",
    "copy_bandwidth",
    "emit_nvtx",
    "kineto_available",
    "planned",
    "planned_bytes",
    "planning",
    "profile",
    "record",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def kineto_available() -> bool:
    """Whether PyTorch's library of profiling is there: False, `profile` does without."""
    return False
