"""Pending values and streams: what is written before a switch is computed before it.

A pending value would be computed on whatever stream is current when it is read, past every wait
the program asked for. So once a program makes a `Stream` or an `Event`, living tensors are noted,
and those still pending are computed where streams meet: at a switch, at an event, at a wait.
Programs without streams never come here: until then nothing is noted and nothing costs.

A backward pass runs on the stream that is current when it is called. It waits for the other
streams, whose values it reads, and they wait for it before they use again what it frees.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.fusion import pending_reductions
from lucid_gpu.fusion import realise as realising
from lucid_gpu.fusion.expression import Expr
from lucid_gpu.tape import engine
from lucid_gpu.tensor import Tensor

_streams: dict[tuple[int, int], Any] = {}  # those ever made current, by device and address
_lock = threading.Lock()
_watching = False


class _Living(threading.local):
    """The tensors made by a thread, weakly: each thread has a current stream of its own."""

    def __init__(self) -> None:
        self.references: list[Any] = []
        self.limit = 1024

    def add(self, tensor: Tensor) -> None:
        self.references.append(weakref.ref(tensor))
        if len(self.references) > self.limit:
            self.limit = max(1024, 2 * len(self.tensors()))

    def tensors(self) -> list[Tensor]:
        """Those that live; the others are forgotten."""
        found = [(r, t) for r in self.references if (t := r()) is not None]
        self.references = [r for r, _ in found]
        return [t for _, t in found]


_living = _Living()


def watch() -> None:
    """Note tensors from now on; those that are there already are looked for, once."""
    global _watching
    with _lock:
        if _watching:
            return
        tensors: Any = sys.modules[Tensor.__module__]
        make = tensors._new

        def noted(cls: Any) -> Any:
            made = make(cls)
            if cls is not Expr:
                _living.add(made)
            return made

        tensors._new = noted
        engine.run_inside(_in_order)
        for found in gc.get_objects():
            if issubclass(type(found), Tensor):
                _living.add(found)
        _watching = True


def flush() -> None:
    """Compute what this thread's tensors on GPUs still have pending."""
    if not _watching:
        return
    for tensor in _living.tensors():
        program = tensor._expr.program
        pending = not program.is_load and program.device.type == "cuda"
        if pending and tensor._wrapper is None:
            tensor._realise()
    if realising.waiting:
        pending_reductions.flush()


def switch(stream: Any, index: int) -> None:
    """Make a CuPy stream the current one of the current device, its pending values computed."""
    flush()
    _streams[index, stream.ptr] = stream
    stream.use()


@contextmanager
def _in_order() -> Iterator[None]:
    """A backward pass after the other streams' work so far, and theirs from now on after it."""
    _meet(before=True)
    try:
        yield
    finally:
        _meet(before=False)


def _meet(before: bool) -> None:
    if not _streams:
        return
    here = backend(device("cuda"))
    # What is pending now was written on this stream since the last switch, and may go on fusing.
    index, current = here.current_index(), here.xp.cuda.get_current_stream()
    for (where, _), other in tuple(_streams.items()):
        if where == index and other.ptr != current.ptr:
            first, second = (other, current) if before else (current, other)
            second.wait_event(first.record())
