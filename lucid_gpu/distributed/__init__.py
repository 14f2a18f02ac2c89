"""lucid_gpu.distributed: what scripts ask before they use several processes; the answer is no.

It is what PyTorch's is where that was built without: ``distributed.is_available()`` is False, and
there is nothing to start.
"""

from __future__ import annotations

from typing import Any

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """Whether processes can train together: never."""
    return False


def is_initialized() -> bool:
    """Whether processes train together: never."""
    return False


def __getattr__(name: str) -> Any:
    from lucid_gpu.absent import lacking

    raise lacking("distributed", name)
