"""cupy.cuda.stream: streams that really lag behind, and events.

Work on the null stream is done at once, after that of all blocking streams, as the legacy default
stream would. Work on any other stream waits in its queue until somebody synchronizes with it, so
that a read which did not wait finds memory as it was before. Work that waits for another process
returns `_PENDING` and is asked again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from cupy import _counts
from cupy.cuda import runtime

Work = Callable[[], Any]
_PENDING = object()
_PAUSE = 5e-5  # seconds between two times that pending work is asked
_lock = threading.RLock()
_numbers = itertools.count(0x1000, 16)
_queues: dict[int, _Queue] = {}


class _Queue:
    """What one stream has yet to do."""

    def __init__(self, device: int, blocking: bool) -> None:
        self.device, self.blocking = device, blocking
        self.waiting: deque[Work] = deque()
        self.captured: list[Work] | None = None

    def step(self) -> bool:
        """Do one piece of work; False where it cannot be done yet."""
        work = self.waiting.popleft()
        if work() is not _PENDING:
            return True
        self.waiting.appendleft(work)
        return False

    def advance(self) -> bool:
        """Do what can be done; whether that is all."""
        with _lock:
            while self.waiting and self.step():
                pass
            return not self.waiting

    def drain(self) -> None:
        while not self.advance():
            time.sleep(_PAUSE)  # without the lock: another thread may abort what is waited for


def _queue(ptr: int) -> _Queue:
    found = _queues.get(ptr)
    if found is None:
        raise runtime.CUDARuntimeError(400)
    return found


def _submit(work: Work, ptr: int | None = None) -> None:
    """Do something in a stream's order; None is the calling thread's current stream."""
    if ptr is None:
        ptr = get_current_stream().ptr
    if ptr in (0, runtime.streamLegacy):
        if _queues:
            _drain_blocking(runtime.getDevice())
        while work() is _PENDING:
            time.sleep(_PAUSE)
        return
    queue = _queue(ptr)
    with _lock:
        (queue.waiting if queue.captured is None else queue.captured).append(work)


def _drain(ptr: int) -> None:
    """Do all that a stream has yet to do."""
    if ptr in (0, runtime.streamLegacy):
        _drain_blocking(runtime.getDevice())
        return
    queue = _queue(ptr)
    if queue.captured is not None:
        raise runtime.CUDARuntimeError(900)
    queue.drain()


def _is_idle(ptr: int) -> bool:
    """Whether nothing of a stream waits."""
    return ptr == 0 or not _queue(ptr).waiting


def _drain_blocking(device: int) -> None:
    for queue in list(_queues.values()):
        if queue.blocking and queue.device == device:
            queue.drain()


def _drain_device(device: int) -> None:
    for queue in list(_queues.values()):
        if queue.device == device:
            queue.drain()


def _settle() -> None:
    """Before the host computes a result in the current stream's name: do what comes before it."""
    if _queues:
        ptr = get_current_stream().ptr
        if ptr:
            _forbid_in_capture()
        _drain(ptr)


def _forbid_in_capture() -> None:
    ptr = get_current_stream().ptr
    if ptr and _queue(ptr).captured is not None:
        raise runtime.CUDARuntimeError(900)


class _Current(threading.local):
    """The calling thread's stream of each device, and the blocks it entered, as CuPy keeps them."""

    def __init__(self) -> None:
        self.of: dict[int, _BaseStream] = {}
        self.entered: list[tuple[int, _BaseStream]] = []


_current = _Current()


class _BaseStream:
    def __init__(self, ptr: int, device_id: int) -> None:
        self.ptr, self.device_id = ptr, device_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ptr} (device {self.device_id})>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BaseStream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __enter__(self) -> Any:
        _current.entered.append((runtime.getDevice(), self))
        return self.use()

    def __exit__(self, *args: Any) -> None:
        device, _ = _current.entered.pop()
        outside = [stream for where, stream in _current.entered if where == device]
        _current.of[device] = outside[-1] if outside else Stream.null  # what `use` chose is lost

    def use(self) -> Any:
        device = runtime.getDevice()
        if self.ptr and self.device_id not in (-1, device):
            raise RuntimeError(
                f"This stream was not created on the current device (device {self.device_id})."
            )
        _current.of[device] = self
        return self

    @property
    def done(self) -> bool:
        """Whether nothing waits; each asking lets the stream do one piece of work."""
        if self.ptr == 0:
            return True
        queue = _queue(self.ptr)
        with _lock:
            if queue.waiting:
                queue.step()
            return not queue.waiting

    def synchronize(self) -> None:
        runtime.streamSynchronize(self.ptr)

    def add_callback(self, callback: Any, arg: Any) -> None:
        _submit(lambda: callback(self, 0, arg), self.ptr)

    def launch_host_func(self, callback: Any, arg: Any) -> None:
        _submit(lambda: callback(arg), self.ptr)

    def record(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        number = event._recorded
        _submit(lambda: event._comes(number) or _PENDING, self.ptr)

    def begin_capture(self, mode: Any = None) -> None:
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        _queue(self.ptr).captured = []

    def end_capture(self) -> Any:
        from cupy.cuda.graph import Graph

        queue = _queue(self.ptr)
        if queue.captured is None:
            raise RuntimeError("cannot end capture: the stream is not capturing")
        found, queue.captured = queue.captured, None
        return Graph._of(found)

    def is_capturing(self) -> bool:
        return bool(self.ptr) and _queue(self.ptr).captured is not None


class Stream(_BaseStream):
    null: Any = None
    ptds: Any = None

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: Any = None,
    ) -> None:
        if null:
            super().__init__(0, -1)
            return
        ptr, device = next(_numbers), runtime.getDevice()
        _queues[ptr] = _Queue(device, not non_blocking)
        super().__init__(ptr, device)

    def __del__(self) -> None:
        queue = _queues.get(getattr(self, "ptr", 0))
        if queue is not None and queue.advance():  # destroying it lets its work finish
            _queues.pop(self.ptr, None)

    @property
    def is_non_blocking(self) -> bool:
        return bool(self.ptr) and not _queue(self.ptr).blocking

    @property
    def priority(self) -> int:
        return 0

    @classmethod
    def from_external(cls, obj: Any) -> Any:
        return ExternalStream(obj.__cuda_stream__()[1])

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


Stream.null = Stream(null=True)
Stream.ptds = Stream.null


class ExternalStream(_BaseStream):
    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(0 if ptr == runtime.streamLegacy else ptr, device_id)


class Event:
    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.ptr = next(_numbers)
        self.device_id = runtime.getDevice()
        self._timed = not disable_timing
        self._stream = 0
        self._recorded = 0  # how often it was recorded, and how often that has come to pass
        self._passed = 0
        self._time = 0.0

    @property
    def done(self) -> bool:
        """Whether it has come to pass; each asking lets its stream do one piece of work."""
        with _lock:
            if self._passed < self._recorded and _queue(self._stream).waiting:
                _queue(self._stream).step()
        return self._passed >= self._recorded

    def record(self, stream: Any = None) -> None:
        stream = get_current_stream() if stream is None else stream
        self._recorded += 1
        number, self._stream = self._recorded, stream.ptr

        def pass_by() -> None:
            self._passed, self._time = max(self._passed, number), time.perf_counter()

        if stream.ptr == 0:
            pass_by()
        else:
            _submit(pass_by, stream.ptr)

    def synchronize(self) -> None:
        runtime._make_context()
        _counts.note("wait", "event")
        self._happen()

    def _happen(self) -> None:
        while not self._comes(self._recorded):
            time.sleep(_PAUSE)

    def _comes(self, number: int) -> bool:
        """Let its stream work up to one of its records; whether that has come to pass."""
        with _lock:
            while self._passed < number:
                if not _queue(self._stream).step():
                    return False
            return True


def get_elapsed_time(start_event: Any, end_event: Any) -> float:
    """Milliseconds of the host, which say nothing about a GPU."""
    if not (start_event._timed and end_event._timed):
        raise runtime.CUDARuntimeError(400)
    return (end_event._time - start_event._time) * 1e3


def get_current_stream(device_id: int = -1) -> Any:
    device = runtime.getDevice() if device_id == -1 else device_id
    return _current.of.get(device, Stream.null)
