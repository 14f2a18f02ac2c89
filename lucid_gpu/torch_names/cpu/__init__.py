"""`torch.cpu`: the host as a device, whose work is done when a call returns."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from . import amp as amp

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]


class Stream:
    """The order in which the host works: there is one."""

    def __init__(self, priority: int = -1) -> None:
        """Take what PyTorch takes."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing."""

    def record_event(self) -> None:
        """Do nothing."""

    def wait_event(self, event: Any) -> None:
        """Do nothing."""


class Event:
    """A mark in the host's work, which is done."""

    def query(self) -> bool:
        """Whether the work before it is done: always."""
        return True

    def record(self, stream: Any = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def wait(self, stream: Any = None) -> None:
        """Do nothing."""


_STREAM = Stream()
StreamContext = stream = nullcontext


def is_available() -> bool:
    """Whether there is a CPU: always."""
    return True


def is_initialized() -> bool:
    """Whether the CPU can be used: always."""
    return True


def synchronize(device: Any = None) -> None:
    """Do nothing: the work is done."""


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _STREAM


def current_device() -> str:
    """Its name, "cpu"."""
    return "cpu"


def device_count() -> int:
    """How many: one."""
    return 1


def set_device(device: Any) -> None:
    """Do nothing: there is one."""
