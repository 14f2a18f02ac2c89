"""PyTorch's older names of `lucid_gpu.profiler`, which does the work."""

from __future__ import annotations

from typing import Any

from lucid_gpu import profiler
from lucid_gpu.profiler import emit_nvtx, record_function
from lucid_gpu.profiler.averages import Averages as EventList

__all__ = ["EventList", "emit_nvtx", "profile", "record_function"]


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

    def __str__(self) -> str:
        return self.table()

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """The table of `key_averages`."""
        return self.key_averages().table(sort_by, row_limit)

    def total_average(self) -> float:
        """Microseconds of all kernels together."""
        return self.key_averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all kernels on the processor."""
        return sum(row.cpu_time_total for row in self.key_averages() if not row.is_range)
