"""`torch._dynamo.utils`: what packages ask about the compiler."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict

from lucid_gpu.ops.user_warnings import warn_user_once

__all__ = ["counters", "disable_cache_limit", "is_compile_supported", "warn_once"]

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)  # of what a compiler did: nothing


def disable_cache_limit() -> contextlib.AbstractContextManager[None]:
    """A block without a limit of compiled variants: none are compiled, so none are counted."""
    return contextlib.nullcontext()


def is_compile_supported(device_type: str) -> bool:
    """Whether `compile` takes functions for a kind of device: it gives them back."""
    return device_type in ("cpu", "cuda")


def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warn of something at the user's line, once in a process; ``stacklevel`` has no effect."""
    warn_user_once(msg)
