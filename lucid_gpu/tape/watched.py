"""Who is told what becomes of values: nobody, but while a step is noted to be made again.

Values tell it here of leaves, writes and tensors that take other values or other memory; arrays
are the affair of `lucid_gpu.devices.port.Calls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

__all__ = ["Watcher", "aside", "tell"]


class Watcher(Protocol):
    """Told of all threads; it knows which are its affair."""

    def made(self, leaf: Any) -> None:
        """A leaf is made, or has other memory."""

    def copying(self, leaf: Any) -> None:
        """A leaf is about to have a copy of its array, which will be written."""

    def twinned(self, leaf: Any) -> None:
        """A leaf is about to have a twin."""

    def read(self, leaf: Any, tensor: Any = None) -> None:
        """A leaf, which is all of a tensor's value if that is given, is about to be read."""

    def undated(self, value: Any) -> None:
        """A pending value is about to lose the step it was made in."""

    def settle(self, *values: Any) -> bool:
        """Compute what was pending before, of operands; returns whether there was any."""

    def realize(self, values: Sequence[Any]) -> list[Any] | None:
        """The arrays of values that were pending before, or None."""

    def compute(self, plan: Any, run: Any, first: Any, args: Sequence[Any]) -> list[Any]:
        """Run a plan by ``first``; when it is made again, by ``run``."""

    def aside(self) -> AbstractContextManager[None]:
        """A block in which what is made is made once."""

    def writing(self, tensor: Any) -> None:
        """A tensor's memory is about to be asked for, to be written."""

    def before_write(self, array: Any, name: str, tensor: Any) -> None:
        """An op is about to write a tensor's memory."""

    def taking(self, tensor: Any) -> None:
        """A tensor is about to take another value."""

    def moving(self, tensor: Any, names: Sequence[str]) -> None:
        """A tensor is about to be given other memory, and what else these attributes are."""

    def stays(self, leaf: Any) -> bool:
        """Whether a tensor that takes another value is to write its memory."""


by: Watcher | None = None


def tell(watcher: Watcher | None) -> None:
    """Tell a watcher from now on, or nobody."""
    global by
    by = watcher


def aside() -> AbstractContextManager[None]:
    """Compute what is made in a ``with`` block now, and not each time a noted step is made again.

    For values that are made in the first step and kept.
    """
    return nullcontext() if by is None else by.aside()
