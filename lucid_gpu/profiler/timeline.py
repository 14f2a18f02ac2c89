"""When each kernel ran: by events on a GPU, by the clock on the CPU."""

from __future__ import annotations

import enum
import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.launch.observers import observers
from lucid_gpu.profiler import trace
from lucid_gpu.profiler.averages import EventList
from lucid_gpu.profiler.events import events_of
from lucid_gpu.profiler.ranges import listeners
from lucid_gpu.profiler.schedule import ProfilerAction

__all__ = ["ExecutionTraceObserver", "ProfilerActivity", "Span", "profile", "supported_activities"]

_NO_EXECUTION_TRACES = (
    "there are no execution traces here; export_chrome_trace writes what ran and when"
)


class ProfilerActivity(enum.Enum):
    """PyTorch's names of activities. They select nothing: all kernels are always recorded."""

    CPU = "cpu"
    CUDA = "cuda"
    XPU = "xpu"
    MTIA = "mtia"
    HPU = "hpu"
    PrivateUse1 = "privateuseone"


def supported_activities() -> set[ProfilerActivity]:
    """Those that this machine has: of the CPU, and of a GPU where there is one."""
    return {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if problem() is None else set())


class ExecutionTraceObserver:
    """PyTorch's writer of execution traces; making one refuses with a NotImplementedError."""

    def __init__(self) -> None:
        raise NotImplementedError(f"ExecutionTraceObserver: {_NO_EXECUTION_TRACES}")


class Span(NamedTuple):
    """Something that took time.

    Attributes
    ----------
    name : str
    device : device or None
        Where a kernel ran; None for a range.
    thread : int
    start, seconds : float
        On the processor, from the beginning of the profile: of a kernel on a GPU, its launch.
    device_start, device_seconds : float
        On the GPU; 0 for what ran on the CPU.
    shape : tuple of int
    bytes_read, bytes_written : int
    ranges : tuple of str
        The ranges around it, outermost first.
    """

    name: str
    device: device | None
    thread: int
    start: float
    seconds: float
    device_start: float = 0.0
    device_seconds: float = 0.0
    shape: tuple[int, ...] = ()
    bytes_read: int = 0
    bytes_written: int = 0
    ranges: tuple[str, ...] = ()

    @property
    def time(self) -> float:
        """Seconds where it ran."""
        return self.device_seconds if self._on_gpu else self.seconds

    @property
    def _on_gpu(self) -> bool:
        return self.device is not None and self.device.type == "cuda"


class _Open(threading.local):
    """The ranges a thread has open: (name, start)."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, float]] = []


class profile:
    """Time every kernel that runs inside a block.

    On a GPU an event is recorded before and after each kernel, which takes the processor a few
    microseconds: times of kernels are true, gaps between them are not. Matrix products are listed
    as ``matmul``; other calls of NumPy and CuPy are not, and show as missing time.

    Parameters
    ----------
    activities : iterable of ProfilerActivity, optional
        Accepted for compatibility.
    record_shapes : bool
        Accepted for compatibility: shapes are always recorded.
    schedule : callable, optional
        What is done in a step, by its number, as `profiler.schedule` makes it; the program calls
        `step` after each. Everything is noted by default.
    on_trace_ready : callable, optional
        Called with the profile when a cycle of the schedule, or the block, has ended.
    acc_events : bool
        Keep the spans of all cycles of a schedule; by default of the last one.
    profile_memory, with_stack, with_flops, with_modules : bool
        Accepted for compatibility, as are ``experimental_config``, ``use_cuda``,
        ``custom_trace_id_callback`` and ``post_processing_timeout_s``: memory, stacks and counts
        of operations are not noted.
    execution_trace_observer : None
        There are no execution traces: NotImplementedError for another.

    Attributes
    ----------
    spans : list of Span
        Kernels and ranges, once the block, or a cycle, has ended.
    seconds : float
        What the whole block, or cycle, took.
    step_num : int
        How many steps have ended.

    Examples
    --------
    >>> import lucid_gpu
    >>> x = lucid_gpu.ones(1000)
    >>> with lucid_gpu.profiler.profile() as prof:
    ...     y = (x * 2 + 1).numpy()
    >>> [(row.key, row.count, row.bytes) for row in prof.key_averages()]
    [('lucid_mul_add', 1, 8000)]
    """

    def __init__(
        self,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        *,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: None = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        if execution_trace_observer is not None:
            raise NotImplementedError(f"profile: {_NO_EXECUTION_TRACES}")
        self.spans: list[Span] = []
        self.seconds = 0.0
        self._noted: list[tuple[Any, ...]] = []
        self._open = _Open()
        self._bases: dict[device, tuple[Any, float]] = {}  # an event, and when it was
        self._schedule, self._ready = schedule, on_trace_ready
        self._action = ProfilerAction.NONE
        self._started = self._paused = False
        self._keeps = acc_events
        self._metadata: dict[str, Any] = {}
        self.step_num = 0

    def __enter__(self) -> profile:
        """Begin to record; RuntimeError if it has begun."""
        if self._started:
            raise RuntimeError("this profile has been started already, and not stopped")
        self._started = True
        if self._schedule is None:
            self._record()
        else:
            self._turn(self._schedule(self.step_num))
        return self

    start = __enter__

    def __exit__(self, *exception: Any) -> None:
        if not self._started:
            raise RuntimeError("this profile has not been started, so it cannot be stopped")
        self._started = False
        self._turn(ProfilerAction.NONE)

    def _record(self) -> None:
        if not self.spans:  # what is kept of earlier cycles counts from the first one's beginning
            self._start = time.perf_counter()
        observers.append(self)
        listeners.append(self)

    def _save(self) -> None:
        listeners.remove(self)
        observers.remove(self)
        for where in self._bases:
            _synchronize(where)
        self.seconds = time.perf_counter() - self._start
        self.spans += [self._span(*noted) for noted in self._noted]
        self._noted = []
        if self._ready is not None:
            self._ready(self)

    def _turn(self, action: ProfilerAction) -> None:
        """What is done from here on; a cycle that ends is handed over."""
        recording = self in observers
        if recording and (self._action is ProfilerAction.RECORD_AND_SAVE or not action.records):
            if self._schedule is not None:
                self._close_step()
            self._save()
            recording = False
        if action.records and not recording:
            self._bases = {}
            if not self._keeps:
                self.spans = []
            self._record()
        self._action = action
        if action.records:
            self.open(f"ProfilerStep#{self.step_num}")

    def stop(self) -> None:
        """End what `start` began."""
        self.__exit__(None, None, None)

    def step(self) -> None:
        """Say that a step of the program ended: ``ProfilerStep#n`` opens and closes."""
        self._close_step()
        if self._schedule is None:
            self.open(f"ProfilerStep#{self.step_num}")
        self.step_num += 1
        if self._schedule is not None:
            self._turn(self._schedule(self.step_num))

    def _close_step(self) -> None:
        while self._open.ranges and self._open.ranges[-1][0].startswith("ProfilerStep#"):
            self.close()

    def events(self) -> EventList:
        """The kernels and ranges as PyTorch's events, in the order in which they began."""
        return EventList(events_of(self.spans), seconds=self.seconds)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """The kernels and ranges summed up by name (and shape)."""
        return self.events().key_averages(group_by_input_shape)

    def add_metadata(self, key: str, value: str) -> None:
        """Write a text into the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Write what a text of JSON says into the trace."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the time line for ``chrome://tracing`` or https://ui.perfetto.dev.

        A ``path`` that ends in ``.gz`` is packed.
        """
        trace.write(self.spans, path, self._metadata)

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> NoReturn:
        """Refuse with a NotImplementedError: no stacks are noted."""
        raise NotImplementedError(
            "profile.export_stacks: no stacks are noted; record_function names parts of a program, "
            "and lucid_gpu.profiler.planning() names lines"
        )

    def export_memory_timeline(self, path: str | Path, device: str | None = None) -> NoReturn:
        """Refuse with a NotImplementedError: no memory is noted."""
        raise NotImplementedError(
            "profile.export_memory_timeline: no memory is noted; ask "
            "lucid_gpu.cuda.max_memory_allocated()"
        )

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity] | None = None
    ) -> None:
        """Note nothing until this is called with True again, and the other way round."""
        self._paused = not enable

    # --- what is noted while the block runs -------------------------------------------------------

    def begin(self, kernel: Any) -> Any:
        """Before a kernel is launched."""
        before, where = None, kernel.device
        if where.type == "cuda":
            if where not in self._bases:
                self._bases[where] = _base(where)
            before = _event(where)
        return before, time.perf_counter()

    def end(self, token: Any, kernel: Any) -> None:
        """After it was launched."""
        before, start = token
        seconds = time.perf_counter() - start
        after = None if before is None else _event(kernel.device)
        if self._paused:
            return
        names = tuple([name for name, _ in self._open.ranges])
        self._noted.append((kernel, threading.get_ident(), start, seconds, before, after, names))

    def open(self, name: str) -> None:
        """Where a range begins."""
        self._open.ranges.append((name, time.perf_counter()))

    def close(self) -> None:
        """Where the innermost range ends."""
        if not self._open.ranges:  # it was open before this profile
            return
        name, start = self._open.ranges.pop()
        if self._paused:
            return
        names = tuple([outer for outer, _ in self._open.ranges])
        seconds = time.perf_counter() - start
        at = start - self._start
        self.spans.append(Span(name, None, threading.get_ident(), at, seconds, ranges=names))

    def _span(
        self,
        kernel: Any,
        thread: int,
        start: float,
        seconds: float,
        before: Any,
        after: Any,
        ranges: tuple[str, ...],
    ) -> Span:
        device_start = device_seconds = 0.0
        if before is not None:
            base, at = self._bases[kernel.device]
            elapsed = backend(kernel.device).xp.cuda.get_elapsed_time
            device_start = at - self._start + elapsed(base, before) / 1e3
            device_seconds = elapsed(before, after) / 1e3
        return Span(
            kernel.name,
            kernel.device,
            thread,
            start - self._start,
            seconds,
            device_start,
            device_seconds,
            tuple(kernel.shape),
            kernel.bytes_read,
            kernel.bytes_written,
            ranges,
        )


def _event(where: device) -> Any:
    """An event on the current stream of a GPU."""
    cuda = backend(where).xp.cuda
    with on_gpu(cuda, where.index):
        event = cuda.Event()
        event.record()
    return event


def _synchronize(where: device) -> None:
    cuda = backend(where).xp.cuda
    with on_gpu(cuda, where.index):
        cuda.runtime.deviceSynchronize()


def _base(where: device) -> tuple[Any, float]:
    """An event and the time at which it came to pass."""
    _synchronize(where)
    event = _event(where)
    event.synchronize()
    return event, time.perf_counter()
