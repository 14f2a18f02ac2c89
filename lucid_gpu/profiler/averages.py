"""Events summed up by name, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from lucid_gpu.profiler import trace
from lucid_gpu.profiler.bandwidth import copy_bandwidth
from lucid_gpu.profiler.events import DeviceType, FormattedTimesMixin, FunctionEvent, nest

__all__ = ["Average", "EventList"]

# PyTorch's names for an order; "time" is where a kernel ran.
_ORDERS = {
    "time": "time",
    "cpu_time": "cpu_time",
    "cpu_time_total": "cpu_time_total",
    "self_cpu_time_total": "self_cpu_time_total",
    "cuda_time": "device_time",
    "cuda_time_total": "device_time_total",
    "self_cuda_time_total": "self_device_time_total",
    "device_time": "device_time",
    "device_time_total": "device_time_total",
    "self_device_time_total": "self_device_time_total",
    "count": "count",
    "bytes": "bytes",
    "gbs": "gbs",
}


_MEMORY = "no memory is noted; ask lucid_gpu.cuda.max_memory_allocated()"
_NOT_NOTED = {
    "flops": "operations are not counted; utils.flop_counter.FlopCounterMode counts them",
    **dict.fromkeys(
        (
            *("cpu_memory_usage", "device_memory_usage", "cuda_memory_usage"),
            *("self_cpu_memory_usage", "self_device_memory_usage", "self_cuda_memory_usage"),
        ),
        _MEMORY,
    ),
}


class Average(FormattedTimesMixin):
    """All events of a name: PyTorch's ``FunctionEventAvg``.

    Attributes
    ----------
    key : str
    is_range : bool
        Whether it is a `record_function`.
    device : device or None
    count : int
    time : float
        Microseconds where the kernels ran; of a range, those of its kernels.
    cpu_time_total, device_time_total : float
        Microseconds on the processor (of a GPU's kernel: its launch) and on the GPU.
    self_cpu_time_total, self_device_time_total : float
        Those outside of what ran inside.
    cpu_time, device_time : float
        Of one call.
    bytes_read, bytes_written, bytes : int
    gbs : float
        Gigabytes (1e9) moved a second.
    input_shapes : list of int
        The shape, where rows are grouped by it.
    cpu_children, cpu_parent
        Of the first event.
    """

    def __init__(self) -> None:
        self.key: str | None = None
        self.device: Any = None
        self.device_type = DeviceType.CPU
        self.use_device: str | None = None
        self.is_range = self.is_user_annotation = self.is_async = self.is_remote = False
        self.node_id, self.input_shapes, self.stack = -1, [], []  # type: ignore[var-annotated]
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.count = self.bytes_read = self.bytes_written = 0
        self.time = self.cpu_time_total = self.device_time_total = 0.0
        self.self_cpu_time_total = self.self_device_time_total = 0.0

    def add(self, other: Any) -> Average:
        """Count an event, or what another row counted."""
        if self.key is None:
            for name in (
                *("key", "device", "device_type", "use_device", "is_range", "is_async"),
                *("is_remote", "node_id", "input_shapes", "stack", "cpu_children", "cpu_parent"),
            ):
                setattr(self, name, getattr(other, name))
            self.is_user_annotation = self.is_range
        repeated = isinstance(other, FunctionEvent) and other.inside_itself()
        figures = ["count", "cpu_time_total", "self_cpu_time_total", "self_device_time_total"]
        if not repeated:  # what ran inside is the outer one's already
            figures += ["time", "device_time_total", "bytes_read", "bytes_written"]
        for name, value in [(name, getattr(other, name)) for name in figures]:
            setattr(self, name, getattr(self, name) + value)
        return self

    __iadd__ = add

    def __getattr__(self, name: str) -> NoReturn:
        why = f": {_NOT_NOTED[name]}" if name in _NOT_NOTED else ""
        raise AttributeError(f"rows of a profile have no attribute {name!r}{why}")

    @property
    def bytes(self) -> int:
        """Bytes read and written, of all launches."""
        return self.bytes_read + self.bytes_written

    @property
    def gbs(self) -> float:
        """Gigabytes read and written in a second."""
        return self.bytes / self.time / 1e3 if self.time else 0.0

    def share_of_copy(self) -> float:
        """Bytes a second over those of a copy on the same device, measured when first asked."""
        return self.gbs * 1e9 / copy_bandwidth(self.device)

    def __repr__(self) -> str:
        return f"<{self.key}: {self.count} calls, {self.time:.1f} us, {self.bytes} bytes>"


class EventList(list[Any]):
    """Events in the order in which they began, or rows that sum them up.

    Parameters
    ----------
    items : iterable of FunctionEvent or Average
    seconds : float
        How long the profile was open.
    use_device, profile_memory, with_flops : optional
        Accepted for compatibility.
    """

    def __init__(
        self,
        items: Iterable[Any] = (),
        *,
        seconds: float = 0.0,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
    ) -> None:
        super().__init__(items)
        self.seconds = seconds

    def _populate_cpu_children(self) -> None:
        nest(self)

    _build_tree = _populate_cpu_children

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds on the processor, each counted once."""
        return sum([one.self_cpu_time_total for one in self])

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """A row for each name, in the order in which they first ran.

        Parameters
        ----------
        group_by_input_shapes : bool
            A row for each name and shape of kernels.
        group_by_stack_n, group_by_overload_name
            Accepted for compatibility: no stacks are noted, and kernels have one name.
        """
        rows: dict[Any, Average] = {}
        for event in self:
            by_shape = group_by_input_shapes and not event.is_range
            key = (event.key, event.device, event.device_type, event.is_range, event.node_id)
            shape = str(event.input_shapes) if by_shape else ""
            row = rows.setdefault((*key, shape), Average())
            row.add(event)
            if not by_shape:
                row.input_shapes = []
        return EventList(rows.values(), seconds=self.seconds)

    def total_average(self) -> Average:
        """All together, as one row of the name "Total"; ranges are counted beside their kernels."""
        total = Average()
        for one in self:
            total.add(one)
        total.key = "Total"
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
        *,
        copy: bool = True,
    ) -> str:
        """A table: calls, time, bytes, GB/s, and the share of a copy's bytes a second.

        Parameters
        ----------
        sort_by : str, optional
            ``"time"``, ``"count"``, ``"bytes"``, ``"gbs"`` or PyTorch's ``"cuda_time_total"``,
            ``"cpu_time_total"`` and so on, largest first; the order of first runs if left out.
        row_limit : int
            How many rows; -1 for all.
        max_src_column_width, max_name_column_width, max_shapes_column_width : int
            Accepted for compatibility: columns are as wide as what stands in them.
        header : str, optional
            A line above.
        top_level_events_only : bool
            Leave out what ran inside a range.
        time_unit : {"s", "ms", "us"}, optional
            Of all times; by default of each the one that fits.
        copy : bool
            Whether to measure a copy (some milliseconds, once a process) for the last column.

        Raises
        ------
        AttributeError
            For an unknown order.
        ValueError
            For another unit.
        """
        rows = self if self and isinstance(self[0], Average) else [Average().add(e) for e in self]
        if sort_by is not None:
            if sort_by not in _ORDERS:
                raise AttributeError(
                    f"cannot sort by {sort_by!r}; there are: {', '.join(sorted(_ORDERS))}"
                )
            rows = sorted(rows, key=lambda row: getattr(row, _ORDERS[sort_by]), reverse=True)
        if time_unit not in (None, *_UNITS):
            raise ValueError(f"time_unit is 's', 'ms' or 'us', got {time_unit!r}")
        if top_level_events_only:
            rows = [row for row in rows if row.cpu_parent is None]
        shown = rows if row_limit < 0 else rows[:row_limit]
        whole = self._kernels_time() or 1.0
        lines = [_HEAD, *[_cells(row, whole, copy, time_unit) for row in shown]]
        foot = self._foot(len(rows) - len(shown), time_unit)
        return "\n".join([*([header] if header else []), *_aligned(lines), *foot])

    def _kernels_time(self) -> float:
        return sum([one.time for one in self if not one.is_range])

    def _foot(self, left_out: int, unit: str | None) -> list[str]:
        launched = sum([one.count for one in self if not one.is_range])
        times = _time(self._kernels_time(), unit), _time(self.seconds * 1e6, unit)
        foot = ["{} kernels, {} of {}".format(launched, *times)]
        return [f"... {left_out} more rows", *foot] if left_out else foot

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the events for ``chrome://tracing`` or https://ui.perfetto.dev."""
        trace.write_events(self, path)

    def __str__(self) -> str:
        return self.table()


_HEAD = ("Name", "Calls", "Total", "Mean", "Part", "Read", "Written", "GB/s", "Of a copy")
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def _cells(row: Average, whole: float, copy: bool, unit: str | None) -> tuple[str, ...]:
    name = f"[{row.key}]" if row.is_range else str(row.key)
    moved = row.time > 0 and row.bytes > 0
    return (
        f"{name} {row.input_shapes}" if row.input_shapes else name,
        str(row.count),
        _time(row.time, unit),
        _time(row.time / row.count, unit),
        f"{row.time / whole:.0%}",
        _bytes(row.bytes_read),
        _bytes(row.bytes_written),
        f"{row.gbs:.1f}" if moved else "",
        f"{row.share_of_copy():.0%}" if moved and copy and not row.is_range else "",
    )


def _time(microseconds: float, unit: str | None) -> str:
    if unit is None:
        unit = next((name for name in ("s", "ms") if microseconds >= _UNITS[name]), "us")
    return f"{microseconds / _UNITS[unit]:.{1 if unit == 'us' else 3}f} {unit}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "  ".join("-" * n for n in widths)
    lines = [
        "  ".join(
            word.rjust(n) if i else word.ljust(n)
            for i, (word, n) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], rule, *lines[1:]]
