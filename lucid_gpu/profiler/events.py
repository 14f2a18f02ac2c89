"""What ran, as events that hold each other: PyTorch's ``FunctionEvent``."""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["DeviceType", "FormattedTimesMixin", "FunctionEvent", "Interval", "Kernel"]


class DeviceType(enum.Enum):
    """Where an event ran."""

    CPU = 0
    CUDA = 1


class Interval:
    """From when to when, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """How long that is."""
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval({self.start:.3f}, {self.end:.3f})"


class Kernel(NamedTuple):
    """A kernel on a GPU that an event launched; its duration in microseconds."""

    name: str
    device: int
    duration: float


def format_time(microseconds: float) -> str:
    """A time as PyTorch writes it: "1.500ms"."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


def _written(name: str) -> property:
    return property(lambda self: format_time(getattr(self, name)))


def _again(name: str) -> property:
    return property(operator.attrgetter(name), doc=f"The older name of `{name}`.")


class FormattedTimesMixin:
    """Times of one call, times as text, and PyTorch's older names of both."""

    count: int
    cpu_time_total: float
    device_time_total: float

    @property
    def cpu_time(self) -> float:
        """Microseconds of one call on the processor."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Microseconds of one call on the GPU."""
        return self.device_time_total / self.count if self.count else 0.0

    cpu_time_str, device_time_str = _written("cpu_time"), _written("device_time")
    cpu_time_total_str = _written("cpu_time_total")
    device_time_total_str = _written("device_time_total")
    self_cpu_time_total_str = _written("self_cpu_time_total")
    self_device_time_total_str = _written("self_device_time_total")
    cuda_time, cuda_time_total = _again("device_time"), _again("device_time_total")
    self_cuda_time_total = _again("self_device_time_total")


class FunctionEvent(FormattedTimesMixin):
    """One launch of a kernel, or one time that a range was open.

    Parameters
    ----------
    id : int
    name : str
    thread : int
    start_us, end_us : float
        On the processor: of a kernel on a GPU, its launch.
    input_shapes : list, optional
        Of a kernel: the shape that it runs over.
    use_device : str, optional
        "cuda" where it launched a kernel on a GPU.
    device_type : DeviceType
        Where those times were measured.
    is_user_annotation : bool
        Whether it is a range.
    bytes_read, bytes_written : int
        What a kernel has to move.
    device : device, optional
        Where a kernel ran.
    overload_name, fwd_thread, stack, scope, is_async, is_remote, sequence_nr, node_id : optional
        For code that makes events, as are ``device_index``, ``trace_name``, ``flops``,
        ``cpu_memory_usage``, ``device_memory_usage`` and ``is_legacy``: a profile notes none of
        them.

    Attributes
    ----------
    time_range : Interval
    kernels : list of Kernel
        Those on a GPU that it launched.
    cpu_parent : FunctionEvent or None
        What was open around it, on its thread.
    cpu_children : list of FunctionEvent
    """

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: Any = None,
        stack: list[str] | None = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int | None = None,
        device_memory_usage: int | None = None,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        device_type: DeviceType = DeviceType.CPU,
        device_index: int = 0,
        is_legacy: bool = False,
        flops: int | None = None,
        trace_name: str | None = None,
        is_user_annotation: bool = False,
        bytes_read: int = 0,
        bytes_written: int = 0,
        device: Any = None,
    ) -> None:
        self.id, self.name, self.key, self.thread = id, name, name, thread
        self.trace_name = name if trace_name is None else trace_name
        self.time_range = Interval(start_us, end_us)
        self.overload_name, self.fwd_thread, self.stack = overload_name, fwd_thread, stack or []
        self.input_shapes, self.scope, self.use_device = input_shapes, scope, use_device
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.is_legacy = is_async, is_remote, is_legacy
        self.sequence_nr, self.node_id, self.flops = sequence_nr, node_id, flops
        self.device_type, self.device_index = device_type, device_index
        self.is_user_annotation, self.device = is_user_annotation, device
        self.count = 1
        self.kernels: list[Kernel] = []
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self._moved = bytes_read, bytes_written

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Note a kernel on a GPU that this launched."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Note what ran while this was open."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Say what was open around this."""
        self.cpu_parent = parent

    @property
    def is_range(self) -> bool:
        """Whether it is a `record_function`."""
        return self.is_user_annotation

    def _with_children(self, name: str, own: Any) -> Any:
        """A figure of this and of all that ran inside it."""
        return own + sum([getattr(child, name) for child in self.cpu_children])

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Microseconds on the processor."""
        return self.time_range.elapsed_us() if self.device_type is DeviceType.CPU else 0.0

    @property
    def self_cpu_time_total(self) -> float:
        """Those outside of what ran inside it."""
        if self.is_async:
            return 0.0
        return self.cpu_time_total - sum([child.cpu_time_total for child in self.cpu_children])

    @property
    def device_time_total(self) -> float:  # type: ignore[override]
        """Microseconds on the GPU, of all kernels launched inside it."""
        if self.device_type is not DeviceType.CPU:
            return self.time_range.elapsed_us()
        return self._with_children("device_time_total", self.self_device_time_total)

    @property
    def self_device_time_total(self) -> float:
        """Microseconds on the GPU of the kernels that it launched itself."""
        if self.device_type is not DeviceType.CPU:
            return self.time_range.elapsed_us()
        return sum([kernel.duration for kernel in self.kernels])

    @property
    def time(self) -> float:
        """Microseconds where it ran; of a range, those of the kernels in it."""
        if self.is_range:
            return float(self._with_children("time", 0.0))
        on_gpu = self.kernels or self.device_type is not DeviceType.CPU
        return self.device_time_total if on_gpu else self.cpu_time_total

    @property
    def bytes_read(self) -> int:
        """What the kernels in it have to read."""
        return int(self._with_children("bytes_read", self._moved[0]))

    @property
    def bytes_written(self) -> int:
        """What the kernels in it have to write."""
        return int(self._with_children("bytes_written", self._moved[1]))

    def inside_itself(self) -> bool:
        """Whether one of the same name is open around it."""
        around = self.cpu_parent
        while around is not None and around.key != self.key:
            around = around.cpu_parent
        return around is not None

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"device_time={self.device_time_str} start_us={self.time_range.start} "
            f"end_us={self.time_range.end} thread={self.thread} input_shapes={self.input_shapes} "
            f"cpu_children={[child.id for child in self.cpu_children]}>"
        )


def nest(events: Iterable[FunctionEvent]) -> None:
    """Say of each event what was open around it, by the times of its thread.

    What begins inside another and ends after it is not inside.
    """
    threads: dict[tuple[int, int], list[FunctionEvent]] = {}
    for event in events:
        if not event.is_async and event.device_type is DeviceType.CPU:
            threads.setdefault((event.thread, event.node_id), []).append(event)
    for row in threads.values():
        row.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
        around: list[FunctionEvent] = []
        for event in row:
            times = event.time_range
            while around and (
                times.start >= around[-1].time_range.end or times.end > around[-1].time_range.end
            ):
                around.pop()
            if around:
                around[-1].append_cpu_child(event)
                event.set_cpu_parent(around[-1])
            around.append(event)


def events_of(spans: Sequence[Any]) -> list[FunctionEvent]:
    """The spans of a profile as events, in the order in which they began."""
    events = []
    for number, span in enumerate(sorted(spans, key=lambda span: span.start)):
        kind = None if span.device is None else span.device.type
        event = FunctionEvent(
            number,
            span.name,
            span.thread,
            span.start * 1e6,
            (span.start + span.seconds) * 1e6,
            input_shapes=list(span.shape),
            use_device=kind if kind == "cuda" else None,
            is_user_annotation=kind is None,
            bytes_read=span.bytes_read,
            bytes_written=span.bytes_written,
            device=span.device,
        )
        if kind == "cuda":
            event.append_kernel(span.name, span.device.index or 0, span.device_seconds * 1e6)
        events.append(event)
    nest(events)
    return events
