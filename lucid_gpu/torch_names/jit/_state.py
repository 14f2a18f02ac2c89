"""`torch.jit._state`: whether TorchScript compiles functions; it does not."""

from __future__ import annotations

__all__ = ["disable", "enable"]


class EnabledProxy:
    """A truth value that is asked for when it is needed."""

    enabled = False

    def __bool__(self) -> bool:
        return self.enabled


_enabled = EnabledProxy()


def disable() -> None:
    """Do nothing: functions are not compiled."""


def enable() -> None:
    """Do nothing: functions are not compiled."""
