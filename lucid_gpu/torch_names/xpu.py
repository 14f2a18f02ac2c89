"""`torch.xpu`: Intel's GPUs, of which none is used."""

from __future__ import annotations

from lucid_gpu.compat.refused import refused

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all"]


def device_count() -> int:
    """How many there are: 0."""
    return 0


def is_available() -> bool:
    """Whether there is one: never."""
    return False


def empty_cache() -> None:
    """Do nothing: there is no memory."""


def manual_seed(seed: int) -> None:
    """Do nothing: there is no generator."""


def manual_seed_all(seed: int) -> None:
    """Do nothing: there are no generators."""


_ABSENT = """current_device current_stream device get_device_name get_device_properties
    get_rng_state initial_seed max_memory_allocated max_memory_reserved memory_allocated
    memory_reserved memory_stats reset_peak_memory_stats set_device set_rng_state stream
    synchronize"""
globals().update(
    {name: refused(f"xpu.{name}", "there is no XPU; write cuda or cpu") for name in _ABSENT.split()}
)
