"""`torch.profiler.itt`: ranges for Intel's profiler, which are not here."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """Whether ITT is there: False."""
    return False


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse with a RuntimeError; `profiler.record_function` names parts of a program."""
    raise RuntimeError(
        "ITT functions not installed. Are you sure you have a ITT build? "
        "lucid_gpu.profiler.record_function names parts of a program"
    )


mark = range = range_pop = range_push = _refuse
