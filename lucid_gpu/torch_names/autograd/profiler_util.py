"""`torch.autograd.profiler_util`: the events of profiles."""

from __future__ import annotations

from lucid_gpu.profiler.averages import Average as FunctionEventAvg
from lucid_gpu.profiler.averages import EventList
from lucid_gpu.profiler.events import FormattedTimesMixin, FunctionEvent, Interval, Kernel
from lucid_gpu.profiler.events import format_time as _format_time

__all__ = [
    "EventList",
    "FormattedTimesMixin",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "_format_memory",
    "_format_time",
    "_format_time_share",
]


def _format_time_share(time_us: float, total_time_us: float) -> str:
    """A time as a share of another, in percent; "NaN" of none."""
    return f"{time_us / total_time_us:.2%}" if total_time_us else "NaN"


def _format_memory(nbytes: int) -> str:
    """A number of bytes, in units of 1024."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"
