"""Streams and events: work that runs side by side, waits for other work, and is timed.

The rule is PyTorch's. Work runs in order on the stream that is current where it is written;
between streams the program orders it (`Stream.wait_stream`, `Event.wait`). Memory goes back to the
stream it was allocated on, so a tensor that another stream still works on when it is freed needs
`Tensor.record_stream` or a wait.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

from lucid_gpu.cuda import pending
from lucid_gpu.cuda.gpus import cupy, current_device, index_of, set_device
from lucid_gpu.cuda.gpus import device as _on
from lucid_gpu.device import device as _device
from lucid_gpu.devices.cuda_errors import explained
from lucid_gpu.devices.cuda_memory import release_passed

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]

STREAMS = 32  # a device and priority has so many, handed out in turn, as PyTorch's


class _Entered(threading.local):
    """The blocks a thread entered by ``with stream_object:``."""

    def __init__(self) -> None:
        self.contexts: list[StreamContext] = []


_entered = _Entered()
_made: dict[tuple[int, int], list[Any]] = {}  # never ended: their memory is kept by address
_turn = itertools.count()
_lock = threading.Lock()


class Stream:
    """A queue of work on one GPU, concurrent with other streams.

    Parameters
    ----------
    device : device, str or int, optional
        The current GPU if left out.
    priority : int
        A lower number goes first.

    Attributes
    ----------
    device : device
    cuda_stream : int
        The ``cudaStream_t``.
    priority : int

    Raises
    ------
    RuntimeError
        If there is no GPU.
    """

    device: _device
    _cupy: Any

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        index = index_of(device)
        with _lock:
            streams = _made.setdefault((index, priority), [])
            if len(streams) < STREAMS:
                with _on(index):
                    cupy_stream = cupy().cuda.Stream(non_blocking=True, priority=priority)
                streams.append(cupy_stream)
                pending.made[index, cupy_stream.ptr] = cupy_stream
            else:
                cupy_stream = streams[next(_turn) % STREAMS]
        return _wrapped(cls, cupy_stream, index)

    @property
    def cuda_stream(self) -> int:
        """Its address, for other libraries."""
        ptr: int = self._cupy.ptr
        return ptr

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """Return its address as an argument of functions called through ctypes."""
        return ctypes.c_void_p(self.cuda_stream)

    @property
    def device_index(self) -> int:
        """The GPU's number."""
        assert self.device.index is not None
        return self.device.index

    @property
    def priority(self) -> int:
        """Lower numbers run first; 0 unless it was asked for."""
        priority: int = self._cupy.priority if self.cuda_stream else 0
        return priority

    def query(self) -> bool:
        """Whether everything given to the stream is done."""
        self._flush()
        with _on(self.device):  # each GPU has a default stream, of one address
            done: bool = self._cupy.done
        return done

    def synchronize(self) -> None:
        """Wait until everything given to the stream is done.

        Raises
        ------
        AcceleratorError
            If a kernel failed.
        """
        self._flush()
        with _on(self.device):
            _wait_for(self._cupy)
        release_passed()

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one if none is given, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Have what is given to the stream from now on wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Have what is given to this stream from now on wait for all that another was given."""
        self.wait_event(stream.record_event())

    def _flush(self) -> None:
        if current_stream(self.device) == self:
            pending.flush()

    def __enter__(self) -> Stream:
        _entered.contexts.append(StreamContext(self))
        _entered.contexts[-1].__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        _entered.contexts.pop().__exit__(*exception)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return False
        return (self.cuda_stream, self.device) == (other.cuda_stream, other.device)

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device))

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def __repr__(self) -> str:
        return f"<lucid_gpu.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made and keeps alive.

    Parameters
    ----------
    stream_ptr : int
        The ``cudaStream_t``.
    device : device, str or int, optional
        The GPU it was made on.
    """

    def __new__(cls, stream_ptr: int, device: Any = None) -> ExternalStream:
        index = index_of(device)
        cupy_stream = cupy().cuda.Stream.from_external(_Foreign(stream_ptr))
        return _wrapped(cls, cupy_stream, index)


class _Foreign:
    """An address as CUDA's stream protocol wants it."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def _wrapped(cls: Any, stream: Any, index: int) -> Any:
    pending.watch()
    wrapper = object.__new__(cls)
    wrapper.device = _device("cuda", index)
    wrapper._cupy = stream
    return wrapper


def _wait_for(waited: Any) -> None:
    try:
        waited.synchronize()
    except cupy().cuda.runtime.CUDARuntimeError as error:
        raise explained(error, "synchronize()") from error


class Event:
    """A mark in a stream, to wait for, to query, and to measure times between.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` will be asked.
    blocking : bool
        Whether `synchronize` lets the processor sleep.
    interprocess : bool
        Whether other processes may open it; such an event has no timing.

    Raises
    ------
    ValueError
        For ``enable_timing`` together with ``interprocess``.

    Notes
    -----
    An elementwise value that was not read is still pending. Recording an event computes what
    was pending on its stream before it, so that two events around some lines time those lines.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if enable_timing and interprocess:
            raise ValueError("Timing must be disabled for interprocess events: enable_timing=False")
        cupy()
        pending.watch()
        self.enable_timing = enable_timing
        self._flags = (blocking, not enable_timing, interprocess)
        self._event: Any = None
        self.device: _device | None = None

    @property
    def cuda_event(self) -> int:
        """The ``cudaEvent_t``, 0 before the event is recorded."""
        return 0 if self._event is None else self._event.ptr

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """Return its address as an argument of functions called through ctypes."""
        return ctypes.c_void_p(self.cuda_event)

    def record(self, stream: Stream | None = None) -> None:
        """Set the mark after all that a stream (the current one) was given so far.

        Raises
        ------
        RuntimeError
            For a stream of another device than at first.
        """
        stream = current_stream() if stream is None else stream
        if self.device is not None and self.device != stream.device:
            raise RuntimeError(
                f"Event device {self.device.index} does not match recording stream's device "
                f"{stream.device.index}"
            )
        stream._flush()
        with _on(stream.device):
            if self._event is None:
                self.device = stream.device
                self._event = cupy().cuda.Event(*self._flags)
            self._event.record(stream._cupy)

    def wait(self, stream: Stream | None = None) -> None:
        """Have what a stream (the current one) is given from now on wait for the mark."""
        stream = current_stream() if stream is None else stream
        stream._flush()
        if self._event is not None:
            with _on(stream.device):
                stream._cupy.wait_event(self._event)

    def query(self) -> bool:
        """Whether all before the mark is done."""
        return self._event is None or bool(self._event.done)

    def synchronize(self) -> None:
        """Wait until all before the mark is done.

        Raises
        ------
        AcceleratorError
            If a kernel failed.
        """
        if self._event is not None:
            _wait_for(self._event)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another.

        Raises
        ------
        ValueError
            If one of them keeps no time, or was not recorded.
        RuntimeError
            If one of them has not happened yet.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._event is None or end_event._event is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError(
                "Both events must be completed before calculating elapsed time: call "
                "synchronize() on the later one."
            )
        milliseconds: float = cupy().cuda.get_elapsed_time(self._event, end_event._event)
        return milliseconds

    def __repr__(self) -> str:
        if self._event is None:
            return "<lucid_gpu.cuda.Event uninitialized>"
        return f"<lucid_gpu.cuda.Event {self.cuda_event:#x}>"


def current_stream(device: Any = None) -> Stream:
    """The stream that a GPU uses now, on the calling thread."""
    index = index_of(device)
    current: Stream = _wrapped(Stream, cupy().cuda.get_current_stream(index), index)
    return current


def default_stream(device: Any = None) -> Stream:
    """The stream that a GPU uses unless another one is chosen."""
    index = index_of(device)
    default: Stream = _wrapped(Stream, cupy().cuda.Stream.null, index)
    return default


def set_stream(stream: Stream | None) -> None:
    """Make a stream and its GPU current, for the calling thread; `stream` is for a block."""
    if stream is not None:
        _switch(stream)


def _switch(stream: Stream, block: Callable[[], Any] | None = None) -> None:
    if current_device() != stream.device_index:
        set_device(stream.device_index)
    pending.switch(stream._cupy, stream.device_index, block)


class StreamContext:
    """A block whose work goes to a stream; None changes nothing. `stream` makes it."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[Stream] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        here = current_stream()
        # The stream of the other device is put back first, this device last.
        there = [] if here.device == self.stream.device else [current_stream(self.stream.device)]
        _switch(self.stream, self.stream._cupy.__enter__)
        self._before = [*there, here]

    def __exit__(self, *exception: Any) -> None:
        block = None if self.stream is None else self.stream._cupy.__exit__
        for before in self._before:
            _switch(before, block)
            block = None
        self._before = []


def stream(stream: Stream | None) -> StreamContext:
    """A block whose work goes to a stream.

    Examples
    --------
    ``with lucid_gpu.cuda.stream(s): y = x.to("cuda", non_blocking=True)``
    """
    return StreamContext(stream)
