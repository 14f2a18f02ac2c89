"""Tensors written in place whose new value is pending: stored with the thread's next kernel.

What is written in place is meant to live on: a momentum, a moving average. Were it left pending,
its program would grow from step to step, and no step would run what another one ran. So before a
kernel runs, what the thread has written since the last one is stored, tensors of one shape that
read the same arrays by one kernel. Where no kernel runs, a value holds each write at most twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from lucid_gpu.fusion.program import LIMIT, MAX_LEAVES, Program
from lucid_gpu.launch.planning import steps
from lucid_gpu.tape.modes import state

__all__ = ["begin_pass", "begin_step", "end_pass", "full", "groups", "note", "take"]

MOST = 512  # tensors that wait
REPEATS = 2  # writes of one name that a value holds


def begin_step() -> None:
    """Work begins anew: a value read, data brought in.

    What has been pending since before is stored when something new is built on it.
    """
    steps.count += 1
    state.step = steps.fresh = steps.count


def begin_pass() -> None:
    """A pass back begins: what is pending may be part of what it computes."""
    steps.count += 1


def end_pass() -> None:
    """What was pending before the pass is old now, but not its results."""
    state.step = steps.fresh = steps.count


def note(tensor: Any, name: str) -> None:
    """A tensor's value is now pending, written by the op of this name."""
    entries = state.written
    entry = entries.get(id(tensor))
    if entry is None or entry[0]() is not tensor:
        names: list[str] = []
        entry = entries[id(tensor)] = (weakref.ref(tensor), names)
    entry[1].append(name)


def full(tensor: Any, name: str) -> bool:
    """Whether what is written has to be stored before the op of this name writes the tensor."""
    entries = state.written
    entry = entries.get(id(tensor))
    if entry is None or entry[0]() is not tensor:
        return len(entries) >= MOST
    return bool(entry[1].count(name) >= REPEATS)


def take() -> list[Any]:
    """The tensors that live and are pending still; they wait no longer."""
    entries, state.written = state.written, {}
    living = [reference() for reference, _ in entries.values()]
    return [t for t in living if t is not None and not t._expr.program.is_load]


def groups(tensors: Sequence[Any]) -> list[list[Any]]:
    """Tensors of one shape that read the same arrays, as many as fit one kernel, together."""
    if len(tensors) == 1:
        return [[*tensors]]
    found: list[_Group] = []
    spaces: dict[Any, dict[Any, _Group]] = {}  # by shape and device; the groups by leaf
    for tensor in tensors:
        program, leaves = tensor._expr.program, tensor._expr.leaves
        reading = spaces.setdefault((program.shape, program.device), {})
        group = None
        for leaf in leaves:
            group = reading.get(leaf)
            if group is not None:
                break
        if group is None or not group.takes(program, leaves):
            group = _Group()
            found.append(group)
        group.add(tensor, program, leaves)
        for leaf in leaves:
            reading[leaf] = group
    return [group.tensors for group in found]


class _Group:
    """What one kernel stores."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.leaves: set[Any] = set()
        self.steps = 0

    def takes(self, program: Program, leaves: Sequence[Any]) -> bool:
        if self.steps + len(program.instructions) > 2 * LIMIT:
            return False
        most = len(self.leaves) + len(leaves)
        return most <= MAX_LEAVES or len(self.leaves.union(leaves)) <= MAX_LEAVES

    def add(self, tensor: Any, program: Program, leaves: Sequence[Any]) -> None:
        self.tensors.append(tensor)
        self.leaves.update(leaves)
        self.steps += len(program.instructions)
