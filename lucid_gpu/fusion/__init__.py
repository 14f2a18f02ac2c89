"""Elementwise expressions, from the op table to kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucid_gpu.core.program import forget
from lucid_gpu.tape.door import EAGER, Watch
from lucid_gpu.tape.modes import state

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
    if on is not before:
        _watch(on)
    forget()  # what is remembered of ops skips the question
    return before


def _as_one(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Any) -> Any:
    """Compute an op that is composed of several, and one in PyTorch, when all of it is there."""
    if not op.whole or state.composing:
        return go_on(*args, **kwargs)
    state.composing = True
    try:
        result = go_on(*args, **kwargs)
    finally:
        state.composing = False
    if result._wrapper is None:
        result._realize()
    return result


_watching = Watch(EAGER, lambda: _as_one)


def _watch(on: bool) -> None:
    if on:
        _watching.__enter__()
    else:
        _watching.__exit__()


if Eager.on:
    _watch(True)
