"""Spans summed up by name, and the table of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu.profiler.bandwidth import copy_bandwidth

__all__ = ["Average", "Averages"]

# PyTorch's names for an order; "time" is where a kernel ran.
_ORDERS = {
    "time": "time",
    "cpu_time": "cpu_time_total",
    "cpu_time_total": "cpu_time_total",
    "self_cpu_time_total": "cpu_time_total",
    "cuda_time": "device_time_total",
    "cuda_time_total": "device_time_total",
    "self_cuda_time_total": "device_time_total",
    "device_time": "device_time_total",
    "device_time_total": "device_time_total",
    "self_device_time_total": "device_time_total",
    "count": "count",
    "bytes": "bytes",
    "gbs": "gbs",
}


class Average:
    """All spans of a name.

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
    bytes_read, bytes_written, bytes : int
    gbs : float
        Gigabytes (1e9) moved a second.
    input_shapes : list of int
        The shape, where rows are grouped by it.
    """

    def __init__(self, key: str, device: Any, shape: Sequence[int] = ()) -> None:
        self.key = key
        self.device = device
        self.is_range = device is None
        self.input_shapes = list(shape)
        self.count = self.bytes_read = self.bytes_written = 0
        self.time = self.cpu_time_total = self.device_time_total = 0.0

    def add(self, span: Any) -> None:
        """Count one more kernel."""
        self.count += 1
        self.cpu_time_total += span.seconds * 1e6
        if not self.is_range:
            self.add_work(span)

    def add_work(self, kernel: Any) -> None:
        """Count a kernel's own time and bytes, also for the ranges around it."""
        self.time += kernel.time * 1e6
        self.device_time_total += kernel.device_seconds * 1e6
        self.bytes_read += kernel.bytes_read
        self.bytes_written += kernel.bytes_written

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


class Averages(Sequence[Average]):
    """The rows of a profile, in the order in which their names first ran."""

    def __init__(self, spans: Sequence[Any], seconds: float, by_shape: bool = False) -> None:
        self.seconds = seconds
        self.by_shape = by_shape
        rows: dict[Any, Average] = {}
        ranges = {span.name for span in spans if span.device is None}
        for span in sorted(spans, key=lambda s: s.start):
            shape = span.shape if by_shape and span.device is not None else ()
            key = (span.name, span.device, shape)
            rows.setdefault(key, Average(*key)).add(span)
            if span.device is not None:
                for name in dict.fromkeys(span.ranges):
                    if name in ranges:
                        rows.setdefault((name, None, ()), Average(name, None)).add_work(span)
        self._rows = list(rows.values())

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Average]:
        return iter(self._rows)

    def total_average(self) -> float:
        """Microseconds of all kernels together."""
        return sum(row.time for row in self if not row.is_range)

    def table(self, sort_by: str | None = None, row_limit: int = 100, copy: bool = True) -> str:
        """A table: calls, time, bytes, GB/s, and the share of a copy's bytes a second.

        Parameters
        ----------
        sort_by : str, optional
            ``"time"``, ``"count"``, ``"bytes"``, ``"gbs"`` or PyTorch's ``"cuda_time_total"``,
            ``"cpu_time_total"`` and so on, largest first; the order of first runs if left out.
        row_limit : int
            How many rows; -1 for all.
        copy : bool
            Whether to measure a copy (some milliseconds, once a process) for the last column.

        Raises
        ------
        AttributeError
            For an unknown order.
        """
        rows = list(self)
        if sort_by is not None:
            if sort_by not in _ORDERS:
                raise AttributeError(
                    f"cannot sort by {sort_by!r}; there are: {', '.join(sorted(_ORDERS))}"
                )
            rows.sort(key=lambda row: getattr(row, _ORDERS[sort_by]), reverse=True)
        shown = rows if row_limit < 0 else rows[:row_limit]
        whole = self.total_average() or 1.0
        lines = [_HEAD, *[_cells(row, whole, copy) for row in shown]]
        return "\n".join([*_aligned(lines), *self._foot(len(rows) - len(shown))])

    def _foot(self, left_out: int) -> list[str]:
        kernels = [row for row in self if not row.is_range]
        launched = sum(row.count for row in kernels)
        foot = [f"{launched} kernels, {_time(self.total_average())} of {_time(self.seconds * 1e6)}"]
        return [f"... {left_out} more rows", *foot] if left_out else foot


_HEAD = ("Name", "Calls", "Total", "Mean", "Part", "Read", "Written", "GB/s", "Of a copy")


def _cells(row: Average, whole: float, copy: bool) -> tuple[str, ...]:
    name = f"[{row.key}]" if row.is_range else row.key
    moved = row.time > 0 and row.bytes > 0
    return (
        f"{name} {row.input_shapes}" if row.input_shapes else name,
        str(row.count),
        _time(row.time),
        _time(row.time / row.count),
        f"{row.time / whole:.0%}",
        _bytes(row.bytes_read),
        _bytes(row.bytes_written),
        f"{row.gbs:.1f}" if moved else "",
        f"{row.share_of_copy():.0%}" if moved and copy and not row.is_range else "",
    )


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f} {unit}"
    return f"{microseconds:.1f} us"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
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
