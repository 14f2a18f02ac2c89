"""A time line in Chrome's trace format.

Source: "Trace Event Format", Google: complete events (``"ph": "X"``), times in microseconds.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def write(spans: Sequence[Any], path: str | Path, metadata: Mapping[str, Any]) -> None:
    """Write spans; the processor's threads and each GPU are rows of their own."""
    events = [*_names(spans), *_events(spans)]
    _write({**metadata, "displayTimeUnit": "ms", "traceEvents": events}, path)


def write_events(events: Sequence[Any], path: str | Path) -> None:
    """Write events (`events.FunctionEvent`); kernels on a GPU stand where they were launched."""
    rows = [
        {
            "ph": "X",
            "name": event.trace_name,
            "cat": "user_annotation" if event.is_range else "kernel",
            "pid": 0,
            "tid": event.thread,
            "ts": event.time_range.start,
            "dur": event.time_range.elapsed_us(),
            "args": {"kernels": [kernel._asdict() for kernel in event.kernels]},
        }
        for event in events
    ]
    _write({"displayTimeUnit": "ms", "traceEvents": rows}, path)


def _write(document: dict[str, Any], path: str | Path) -> None:
    """Write a document, packed where the name ends in ``.gz``."""
    content = json.dumps(document).encode()
    Path(path).write_bytes(gzip.compress(content) if str(path).endswith(".gz") else content)


def _names(spans: Sequence[Any]) -> Iterator[dict[str, Any]]:
    rows = {0: "CPU"} | {_row(s): str(s.device) for s in spans if _row(s)}
    for row, name in rows.items():
        yield {"ph": "M", "name": "process_name", "pid": row, "tid": 0, "args": {"name": name}}


def _row(span: Any) -> int:
    """0 for the processor, 1 and up for GPUs."""
    on_gpu = span.device is not None and span.device.type == "cuda"
    return 1 + (span.device.index or 0) if on_gpu else 0


def _events(spans: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for span in spans:
        kind = "user_annotation" if span.device is None else "kernel"
        about = {} if span.device is None else _figures(span)
        if _row(span):
            yield _event(span, "launch", 0, span.thread, span.start, span.seconds, {})
            yield _event(span, kind, _row(span), 0, span.device_start, span.device_seconds, about)
        else:
            yield _event(span, kind, 0, span.thread, span.start, span.seconds, about)


def _figures(span: Any) -> dict[str, Any]:
    return {
        "shape": list(span.shape),
        "bytes read": span.bytes_read,
        "bytes written": span.bytes_written,
        "ranges": list(span.ranges),
    }


def _event(
    span: Any, kind: str, row: int, thread: int, start: float, seconds: float, about: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.name,
        "cat": kind,
        "pid": row,
        "tid": thread,
        "ts": start * 1e6,
        "dur": seconds * 1e6,
        "args": about,
    }
