"""Pending values and streams: what is written before a switch is computed before it.

A pending value would be computed on whatever stream is current when it is read, past every wait
the program asked for. So once a program makes a `Stream` or an `Event`, the tensors it makes and
writes are noted, and those still pending are computed where streams meet: at a switch, at an event,
at a wait. Programs without streams never come here: until then nothing is noted.

A pending value belongs to the stream that was current when it was written; to the default stream,
if that was before the first `Stream` or `Event`. Where it is computed on another one, because
nobody had noted it or another thread reads it first, that stream waits for all others, and they
wait for it: so a thread that waited for its own stream sees it.

A backward pass runs on the stream that is current when it is called. It waits for the other
streams, whose values it reads, and they wait for it before they use again what it frees.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucid_gpu.core import engine
from lucid_gpu.core.value import Expr
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, cuda_memory
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.fusion import pending_reductions
from lucid_gpu.fusion import realize as realizing
from lucid_gpu.tensor import Tensor, follow_streams

made: dict[tuple[int, int], Any] = {}  # the package's streams, by GPU and address
_streams: dict[tuple[int, int], Any] = {}  # those ever made current
_lock = threading.Lock()
LEAST = 32  # references kept before those to what is gone are dropped
_watching = False


class _Noted(threading.local):
    """What a thread may have left pending; each thread has a current stream of its own.

    Attributes
    ----------
    current : dict
        The address of the current stream, by GPU; the default stream where there is no entry.
    """

    def __init__(self) -> None:
        self.references: list[Any] = []
        self.limit = LEAST
        self.current: dict[int | None, int] = {}

    def add(self, tensor: Tensor) -> None:
        """Note a tensor that was made or written in place, if its value is pending on a GPU."""
        program = tensor._expr.program
        if program.is_load or program.device.type != "cuda":
            return
        tensor._stream = self.current.get(program.device.index, 0)
        self.references.append(weakref.ref(tensor))
        if len(self.references) > self.limit:
            self.limit = max(LEAST, 2 * len(self.tensors()))

    def tensors(self) -> list[Tensor]:
        """Those that live and are pending; the others are forgotten."""
        living = [(r, t) for r in self.references if (t := r()) is not None]
        living = [(r, t) for r, t in living if not t._expr.program.is_load]
        self.references = [r for r, _ in living]
        return [t for _, t in living]

    def compute(self, tensors: Sequence[Tensor], values: Sequence[Expr]) -> list[Any]:
        """The arrays of pending values of tensors; all streams are ordered where one is not here.

        Memory belongs to the current stream: that of others is to wait for their own stream, too.
        """
        where = values[0].program.device
        here = self.current.get(where.index, 0)
        if where.type != "cuda" or all(tensor._stream == here for tensor in tensors):
            return realizing.realize(values)
        cuda = backend(where).xp.cuda
        assert where.index is not None
        streams: dict[tuple[int, int], Any] = {(where.index, 0): cuda.Stream.null}
        known = [*made.items(), *_streams.items()]
        streams.update({at: stream for at, stream in known if at[0] == where.index})
        with cuda.Device(where.index), _in_order(streams):
            arrays = realizing.realize(values)
        for tensor, array in zip(tensors, arrays, strict=True):
            if tensor._stream != here:
                cuda_memory.record_stream(array, streams[where.index, tensor._stream])
        return arrays


_noted = _Noted()


def watch() -> None:
    """Note tensors from now on."""
    global _watching
    with _lock:
        if not _watching:
            backend(CPU).once("the first stream or event", "its order was not followed")
            other = follow_streams(_noted)
            if other is not None:
                follow_streams(other)
                raise RuntimeError(
                    "the first stream or event of a process cannot be made while another thread "
                    "captures a graph: make one before"
                )
            engine.run_inside(lambda: _in_order(_streams))
            _watching = True


def flush() -> None:
    """Compute what this thread's tensors on GPUs still have pending."""
    if not _watching:
        return
    for tensor in _noted.tensors():
        if tensor._wrapper is None:
            tensor._realize()
    if realizing.waiting:
        pending_reductions.flush()


def switch(stream: Any, index: int, block: Callable[[], Any] | None = None) -> None:
    """Make a CuPy stream the current one of the current device, its pending values computed.

    ``block`` enters or leaves a block of CuPy's: at the end of a block within it, CuPy goes back to
    the stream of the block outside, not to the one that was made current.
    """
    backend(device("cuda")).once("a change of the stream", "what is captured has one stream")
    flush()
    _streams[index, stream.ptr] = stream
    _noted.current[index] = stream.ptr
    if block is not None:
        block()
    stream.use()


@contextmanager
def _in_order(streams: dict[tuple[int, int], Any]) -> Iterator[None]:
    """After other streams' work so far, and theirs from now on after it."""
    _meet(streams, before=True)
    try:
        yield
    finally:
        _meet(streams, before=False)


def _meet(streams: dict[tuple[int, int], Any], before: bool) -> None:
    if not streams:
        return
    there = backend(device("cuda"))
    if there.records:  # what is noted has one stream
        return
    cuda = there.xp.cuda
    # What is pending now was written on these streams since the last switch, and may go on fusing.
    for (where, _), other in tuple(streams.items()):
        current = cuda.get_current_stream(where)
        if other.ptr != current.ptr:
            first, second = (other, current) if before else (current, other)
            with on_gpu(cuda, where):  # a default stream is that of the current GPU
                second.wait_event(first.record())
