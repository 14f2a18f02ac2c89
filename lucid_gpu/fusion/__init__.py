"""Elementwise expressions, from the op table to kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lucid_gpu.fusion.program import forget

__all__ = ["eager"]


class Eager:
    """Whether every op is realized on its own line: LUCID_EAGER=1, or `eager`."""

    on = os.environ.get("LUCID_EAGER", "") not in ("", "0")


@contextmanager
def eager(mode: bool = True) -> Iterator[None]:
    """Compute each op on its own line inside a ``with`` block, without fusion, on all threads.

    Parameters
    ----------
    mode : bool
        False turns fusion on again inside such a block.

    Examples
    --------
    >>> import lucid_gpu
    >>> with lucid_gpu.fusion.eager():
    ...     y = lucid_gpu.ones(3) * 2 + 1  # two kernels
    """
    before = set_eager(mode)
    try:
        yield
    finally:
        set_eager(before)


def set_eager(on: bool) -> bool:
    """Realize every op at once from now on, on all threads, or not; what held before."""
    before, Eager.on = Eager.on, on
    forget()  # what is remembered of ops skips the question
    return before
