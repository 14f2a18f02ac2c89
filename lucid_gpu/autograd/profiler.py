"""PyTorch's older names of `lucid_gpu.profiler`, which does the work."""

from __future__ import annotations

from typing import Any

from lucid_gpu import profiler
from lucid_gpu.compat.refused import refused
from lucid_gpu.profiler import EventList, emit_nvtx, kineto_available, record_function
from lucid_gpu.profiler.averages import Average
from lucid_gpu.profiler.events import FunctionEvent

__all__ = [
    "EventList",
    "FunctionEvent",
    "emit_itt",
    "emit_nvtx",
    "kineto_available",
    "load_nvprof",
    "parse_nvprof_trace",
    "profile",
    "record_function",
]

emit_itt = refused(
    "autograd.profiler.emit_itt", "there is no ITT; profile() measures kernels and ranges"
)
load_nvprof = parse_nvprof_trace = refused(
    "autograd.profiler.load_nvprof", "files of nvprof are not read; profile() measures kernels"
)


class profile(profiler.profile):
    """`lucid_gpu.profiler.profile` with the arguments it had in ``torch.autograd``.

    Parameters
    ----------
    enabled : bool
        Nothing is noted without.
    use_cuda, use_device, record_shapes, with_flops, profile_memory, with_stack : bool or str
        Taken and without effect, as are ``with_modules`` and ``use_kineto``: times on a GPU and
        shapes are always recorded.

    Examples
    --------
    >>> import lucid_gpu
    >>> with lucid_gpu.autograd.profiler.profile() as prof:
    ...     y = (lucid_gpu.ones(1000) * 2 + 1).numpy()
    >>> print(prof.table(row_limit=1).splitlines()[-1].split(",")[0])
    1 kernels
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
    ) -> None:
        super().__init__(record_shapes=record_shapes)
        self.enabled = enabled

    def __enter__(self) -> profile:
        if self.enabled:
            super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.enabled:
            super().__exit__(*exception)

    @property
    def function_events(self) -> EventList:
        """The same as `events`."""
        return self.events()

    def __str__(self) -> str:
        return self.table()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The table of `key_averages`; arguments are those of `EventList.table`."""
        return self.key_averages().table(*args, **kwargs)

    def total_average(self) -> Average:
        """All events together, as one row."""
        return self.events().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all kernels and ranges on the processor, each counted once."""
        return self.events().self_cpu_time_total
