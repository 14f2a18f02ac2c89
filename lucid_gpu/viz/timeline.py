"""A profile as a time line: ranges above, the kernels that ran in them below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from lucid_gpu.profiler import profile
from lucid_gpu.profiler.timeline import Span
from lucid_gpu.viz.picture import INK, PALE, Picture, element, text, width_of

__all__ = ["timeline"]

_MARGIN, _LABELS, _ROW, _GAP = 22.0, 92.0, 24.0, 4.0
_COLORS = (
    *("#5b8ff9", "#f6a54c", "#5ad8a6", "#e8684a", "#9270ca", "#6dc8ec", "#d8b04c", "#ff9dc6"),
    *("#269a99", "#a0b35b"),
)
_OTHERS = "#c3c9d2"


class _Lane(NamedTuple):
    """A thread or a GPU: its ranges by depth, its kernels."""

    label: str
    ranges: list[list[Span]]
    kernels: list[Span]


def timeline(prof: profile, *, title: str = "", width: float = 980.0) -> Picture:
    """Draw when each kernel of a profile ran.

    Kernels are colored by name; the legend lists those that took longest. A notebook shows a bar's
    shape, time and bandwidth under the pointer.

    Parameters
    ----------
    prof : profiler.profile
        Ended.
    title : str
    width : float
        Of the picture.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError, ValueError
        For anything but a profile, and for one in which nothing ran.
    """
    if not isinstance(prof, profile):
        raise TypeError(f"timeline() draws a profiler.profile, not {type(prof).__name__}")
    if not prof.spans:
        raise ValueError("nothing ran in this profile, or it has not ended: leave its with block")
    lanes = _lanes(prof.spans)
    first = min(_start(s) for s in prof.spans)
    seconds = max(_start(s) + s.time for s in prof.spans) - first
    colors = _colored(prof.spans)
    scale = (width - 2 * _MARGIN - _LABELS) / max(seconds, 1e-9)
    left, y = _MARGIN + _LABELS, _MARGIN + (30 if title else 0)
    bars: list[str] = []
    for lane in lanes:
        bars.append(text(_MARGIN, y + 16, lane.label, 12, INK, "start", bold=True))
        for row in lane.ranges:
            bars += [_range(s, left + (s.start - first) * scale, y, scale) for s in row]
            y += _ROW + _GAP
        bars += [
            _kernel(s, left + (_start(s) - first) * scale, y, scale, colors) for s in lane.kernels
        ]
        y += (_ROW + _GAP) * bool(lane.kernels) + 12
    parts = [text(width / 2, _MARGIN + 8, title, 15, bold=True)] if title else []
    parts += _axis(seconds, scale, left, _MARGIN + (22 if title else -8), y) + bars
    legend, bottom = _legend(prof.spans, colors, y + 40, width)
    return Picture(width, bottom + _MARGIN, parts + legend, title or "time line")


def _start(span: Span) -> float:
    return span.device_start if span._on_gpu else span.start


def _lanes(spans: Iterable[Span]) -> list[_Lane]:
    lanes: dict[Any, _Lane] = {}
    threads: dict[int, str] = {}
    for span in sorted(spans, key=lambda s: s.start):
        if span._on_gpu:
            key, label = ("gpu", str(span.device)), str(span.device)
        else:
            label = threads.setdefault(span.thread, f"thread {len(threads) + 1}")
            key = ("cpu", label)
        lane = lanes.setdefault(key, _Lane(label, [], []))
        if span.device is not None:
            lane.kernels.append(span)
            continue
        depth = len(span.ranges)
        lane.ranges.extend([] for _ in range(depth + 1 - len(lane.ranges)))
        lane.ranges[depth].append(span)
    if len(threads) == 1:
        lanes = {k: v._replace(label="CPU") if k[0] == "cpu" else v for k, v in lanes.items()}
    return [lanes[key] for key in sorted(lanes)]


def _totals(spans: Iterable[Span]) -> list[tuple[str, float, int]]:
    """Names of kernels, their seconds and calls; the longest first."""
    sums: dict[str, tuple[float, int]] = {}
    for span in spans:
        if span.device is not None:
            seconds, calls = sums.get(span.name, (0.0, 0))
            sums[span.name] = seconds + span.time, calls + 1
    return sorted(((n, s, c) for n, (s, c) in sums.items()), key=lambda row: -row[1])


def _colored(spans: Iterable[Span]) -> dict[str, str]:
    names = [name for name, _, _ in _totals(spans)]
    return dict(zip(names, _COLORS))


def _range(span: Span, x: float, y: float, scale: float) -> str:
    wide = max(span.seconds * scale, 1.0)
    tip = f"<title>{escape(span.name)}: {_time(span.seconds)}</title>"
    paint = {"fill": "#eef1f5", "stroke": "#cfd5dd"}
    box = element("rect", tip, x=x, y=y, width=wide, height=_ROW, rx=5, **paint)
    return box + _label(f"{span.name}  {_time(span.seconds)}", span.name, x, y, wide, PALE)


def _kernel(span: Span, x: float, y: float, scale: float, colors: dict[str, str]) -> str:
    wide = max(span.time * scale, 0.8)
    moved = span.bytes_read + span.bytes_written
    speed = f", {moved / span.time / 1e9:.1f} GB/s" if moved and span.time else ""
    tip = f"{span.name}\nshape {list(span.shape)}, {_time(span.time)}{speed}"
    color = colors.get(span.name, _OTHERS)
    box = element(
        "rect",
        f"<title>{escape(tip)}</title>",
        x=x,
        y=y,
        width=wide,
        height=_ROW,
        rx=min(3.0, wide / 3),
        fill=color,
    )
    short = span.name.removeprefix("lucid_")
    return box + _label(short, short, x, y, wide, "#ffffff" if color != _OTHERS else INK)


def _label(words: str, shorter: str, x: float, y: float, wide: float, ink: str) -> str:
    """The longest of two texts that fits into a bar."""
    for candidate in (words, shorter):
        if width_of(candidate, 10.5) + 10 < wide:
            return text(x + wide / 2, y + 16, candidate, 10.5, ink)
    return ""


def _axis(seconds: float, scale: float, left: float, top: float, bottom: float) -> list[str]:
    """Thin lines at round times, their names below."""
    step = 10 ** math.floor(math.log10(max(seconds, 1e-9) / 4))
    step *= next(m for m in (1, 2, 5, 10) if seconds / (step * m) <= 8)
    parts = []
    for i in range(int(seconds / step + 1e-6) + 1):
        x = left + i * step * scale
        parts.append(
            element("line", x1=x, y1=top + 8, x2=x, y2=bottom, stroke="#eef0f3", stroke_width=1)
        )
        parts.append(text(x, bottom + 14, _time(i * step), 10.5, PALE))
    return parts


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0"


def _legend(
    spans: Sequence[Span], colors: dict[str, str], y: float, width: float
) -> tuple[list[str], float]:
    """The kernels that took longest, in two columns; and where it ends."""
    rows = _totals(spans)
    all_of = sum(seconds for _, seconds, _ in rows) or 1.0
    shown = rows[: len(_COLORS)]
    parts, column, half = [], (width - 2 * _MARGIN) / 2, (len(shown) + 1) // 2
    for i, (name, seconds, calls) in enumerate(shown):
        x, at = _MARGIN + column * (i // half), y + 19 * (i % half)
        parts.append(element("rect", x=x, y=at, width=13, height=13, rx=3, fill=colors[name]))
        parts.append(text(x + 20, at + 11, _cut(name, column - 210), 11, INK, "start", mono=True))
        numbers = f"{_time(seconds)}  ·  {calls}×  ·  {seconds / all_of:.0%}"
        parts.append(text(x + column - 24, at + 11, numbers, 11, PALE, "end"))
    bottom = y + 19 * half
    if len(rows) > len(shown):
        rest = sum(seconds for _, seconds, _ in rows[len(shown) :])
        parts.append(element("rect", x=_MARGIN, y=bottom, width=13, height=13, rx=3, fill=_OTHERS))
        words = f"{len(rows) - len(shown)} others: {_time(rest)}"
        parts.append(text(_MARGIN + 20, bottom + 11, words, 11, PALE, "start"))
        bottom += 19
    return parts, bottom


def _cut(name: str, wide: float) -> str:
    most = int(wide / width_of("x", 11, True))
    return name if len(name) <= most else name[: most - 1] + "…"
