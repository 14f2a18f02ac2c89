"""`torch.ao.quantization.observer`: what would find ranges of values; making one refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from lucid_gpu.nn import Module

__all__ = [
    "FakeQuantizeBase",
    "HistogramObserver",
    "MinMaxObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
]


def refuse(name: str) -> NoReturn:
    """Raise the RuntimeError of a function that would quantize."""
    raise RuntimeError(
        f"lucid_gpu.ao.quantization.{name}: there is no quantization; "
        "amp.autocast computes in 16 bits"
    )


class ObserverBase(Module):
    """What no module is: for `isinstance`; making one refuses with a RuntimeError."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        refuse(type(self).__name__)

    @classmethod
    def with_args(cls, **settings: Any) -> Callable[..., Any]:
        """What would make one with these settings, for a `QConfig`."""
        return functools.partial(cls, **settings)


class FakeQuantizeBase(ObserverBase):
    """What no module is: for `isinstance`; making one refuses with a RuntimeError."""


class MinMaxObserver(ObserverBase):
    """What no module is: for `isinstance`; making one refuses with a RuntimeError."""


class PerChannelMinMaxObserver(ObserverBase):
    """What no module is: for `isinstance`; making one refuses with a RuntimeError."""


class HistogramObserver(ObserverBase):
    """What no module is: for `isinstance`; making one refuses with a RuntimeError."""
