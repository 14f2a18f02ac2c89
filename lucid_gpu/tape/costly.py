"""Calls that cost most of a model's time: products of matrices, convolutions and attention.

They are made of arrays, below the graph. Who counts their work (`FlopCounterMode`) or keeps their
results (`create_selective_checkpoint_contexts`) sees each on its way, in forward and in backward;
while nobody does, a call is one test more. Under a checkpoint elementwise ops are calls too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from lucid_gpu.tape.modes import state

__all__ = [
    "CostlyCall",
    "Watcher",
    "active",
    "in_backward",
    "named",
    "recomputing",
    "run",
    "run_row",
    "watching",
]


class CostlyCall(NamedTuple):
    """One call.

    Attributes
    ----------
    name : str
        PyTorch's name of the op, such as "mm", "convolution" or, with its form, "add.Tensor".
    arrays : tuple of arrays
        What it reads.
    settings : tuple
        What PyTorch's op takes after its tensors.
    where : device
    backward : bool
        Whether a backward pass makes it.
    op : CustomOpDef or None
        The op of a user's that is called, with tensors in the place of arrays.
    """

    name: str
    arrays: tuple[Any, ...]
    settings: tuple[Any, ...]
    where: Any
    backward: bool
    op: Any = None


Watcher = Callable[[CostlyCall, Callable[[], Any]], Any]
"""Called as ``(call, go_on)``; ``go_on()`` computes."""


class _Watchers(threading.local):
    stack: tuple[Watcher, ...] = ()
    name: str | None = None
    task: Any = None  # the backward pass in which forward is computed again


_here = _Watchers()
active: list[Watcher] = []  # in all threads
_changing = threading.Lock()


@contextmanager
def watching(watcher: Watcher) -> Any:
    """Let it see the calls of this thread inside a ``with``; the last one sees them first."""
    before, _here.stack = _here.stack, (*_here.stack, watcher)
    with _changing:
        active.append(watcher)
    try:
        yield
    finally:
        _here.stack = before
        with _changing:
            active.remove(watcher)


@contextmanager
def named(name: str) -> Any:
    """Products inside a ``with`` are parts of this op."""
    before, _here.name = _here.name, name
    try:
        yield
    finally:
        _here.name = before


@contextmanager
def recomputing() -> Any:
    """What is computed inside a ``with`` is a forward, though a backward pass asked for it."""
    before, _here.task = _here.task, state.task
    try:
        yield
    finally:
        _here.task = before


def in_backward() -> bool:
    """Whether a backward pass computes for itself."""
    return state.task is not None and state.task is not _here.task


def run(
    name: str,
    where: Any,
    compute: Callable[[], Any],
    arrays: Sequence[Any],
    settings: Sequence[Any] = (),
    op: Any = None,
) -> Any:
    """What a call gives, by way of all that watch."""
    stack = _here.stack
    if not stack:
        return compute()
    backward = in_backward()
    if op is None and _here.name is not None and not backward:
        name = _here.name
    call = CostlyCall(name, tuple(arrays), tuple(settings), where, backward, op)
    return _through(stack, call, compute)


def run_row(name: str, where: Any, compute: Callable[[], Any], operands: Sequence[Any]) -> Any:
    """What an elementwise op gives, by way of all that watch; parts of others are not shown."""
    if _here.name is not None or in_backward():
        return compute()
    return run(name, where, compute, operands)


def _through(stack: tuple[Watcher, ...], call: CostlyCall, compute: Callable[[], Any]) -> Any:
    if not stack:
        return compute()
    return stack[-1](call, lambda: _through(stack[:-1], call, compute))
