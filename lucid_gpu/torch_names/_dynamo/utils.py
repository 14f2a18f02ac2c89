"""`torch._dynamo.utils`: what packages ask about the compiler."""

from __future__ import annotations

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: str) -> bool:
    """Whether `compile` takes functions for a kind of device: it gives them back."""
    return device_type in ("cpu", "cuda")
