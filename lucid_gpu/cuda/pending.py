"""Pending values and streams: what is written before a switch is computed before it.

A pending value would be computed on whatever stream is current when it is read, past every wait
the program asked for. So once a program makes a `Stream` or an `Event`, the tensors that it makes
are noted (`fusion.living`), and those still pending are computed where streams meet: at a switch,
at an event, at a wait. Programs without streams never come here: until then nothing is noted.

What is pending since before the first `Stream` or `Event` is computed when it is read, after the
work of all streams so far, and they go on after it. A backward pass, which runs on the stream that
is current when it is called, is ordered in the same way: it reads what other streams computed, and
frees what they use again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.fusion import living, pending_reductions
from lucid_gpu.fusion import realise as realising
from lucid_gpu.fusion.written import begin_step
from lucid_gpu.launch.planning import steps
from lucid_gpu.tape import engine
from lucid_gpu.tensor import store_written

_streams: dict[tuple[int, int], Any] = {}  # those ever made current, by device and address
_made: dict[tuple[int, int], Any] = {}  # those that the program has, too
_lock = threading.Lock()
_watching = False


def watch(stream: Any = None, index: int = 0) -> None:
    """Note tensors from now on; ``stream`` is one that the program was given, of a GPU."""
    global _watching
    with _lock:
        if stream is not None:
            _made[index, stream.ptr] = stream
        if _watching:
            return
        _watching = True
        living.begin()
        store_written()
        begin_step()
        realising.run_inside(_after_all, before=steps.count)
        engine.run_inside(_in_order)


def flush() -> None:
    """Compute what this thread's tensors on GPUs still have pending."""
    if not _watching:
        return
    for tensor in living.tensors():
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
    """After the work so far of the streams that were current, and theirs from now on after it."""
    # What is pending now was written on this stream since the last switch, and may go on fusing.
    _meet(_streams, before=True)
    try:
        yield
    finally:
        _meet(_streams, before=False)


@contextmanager
def _after_all(gpu: device) -> Iterator[None]:
    """The same of all streams: on whichever the value was written, it is computed here."""
    from lucid_gpu.cuda.gpus import cupy

    cuda = cupy().cuda
    assert gpu.index is not None
    with cuda.Device(gpu.index):
        streams = {(gpu.index, cuda.Stream.null.ptr): cuda.Stream.null, **_made, **_streams}
        _meet(streams, before=True)
        try:
            yield
        finally:
            _meet(streams, before=False)


def _meet(streams: dict[tuple[int, int], Any], before: bool) -> None:
    if not streams:
        return
    from lucid_gpu.cuda.gpus import cupy, current_device

    index, current = current_device(), cupy().cuda.get_current_stream()
    for (where, _), other in tuple(streams.items()):
        if where == index and other.ptr != current.ptr:
            first, second = (other, current) if before else (current, other)
            second.wait_event(first.record())
