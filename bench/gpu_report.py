"""What `make gpu` found, as rows and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.gpu_cases import CASES, Case, Kit, sized
from bench.gpu_worker import PEERS, difference

Figures = dict[str, Any]

SUBJECT, BASELINE = "lucid_gpu", "torch-eager"
APART = ("device", "host", "first")  # seconds of a step besides those by which peers are compared
TOLERANCES = {"float32": 2e-3, "float16": 1e-2, "bfloat16": 3e-2}  # TF32 is off; steps add up


def rows(document: Figures) -> list[Figures]:
    """One row for each case and type that lucid_gpu has a figure or a failure for."""
    copy = copy_of(document)
    return [
        _row(case, dtype, document, copy)
        for case in CASES
        for dtype in case.dtypes
        if _figures(document, SUBJECT, case.name, dtype)
    ]


def copy_of(document: Figures) -> float | None:
    """Bytes a second of the fastest copy measured."""
    found = document["parts"].get("copy", {}).get("pieces", {}).values()
    rates = [piece["figures"]["bytes_a_second"] for piece in found if piece.get("figures")]
    return max(rates, default=None)


def _figures(document: Figures, peer: str, case: str, dtype: str) -> Figures:
    cases = document.get("benchmarks", {}).get(peer, {})
    found: Figures = cases.get(f"{case} {dtype}", {})
    return found


def _row(case: Case, dtype: str, document: Figures, copy: float | None) -> Figures:
    ours = _figures(document, SUBJECT, case.name, dtype)
    seconds = ours.get("seconds")
    kit = Kit(None, "", dtype, sized(case, document["toy"]), 1)
    row: Figures = {"case": case.name, "title": case.title, "dtype": dtype, "aim": case.aim}
    row["failed"] = ours.get("failed")
    row["seconds"] = seconds
    row.update({name: ours.get(name) for name in APART})
    if seconds and case.least:
        row["bytes_a_second"] = case.least(kit) / seconds
        row["of_copy"] = row["bytes_a_second"] / copy if copy else None
    if seconds and case.flops:
        row["operations_a_second"] = case.flops(kit) / seconds
    row["peers"] = {
        peer.name: _beside(case, dtype, document, peer.name, ours)
        for peer in PEERS
        if peer.name != SUBJECT and _figures(document, peer.name, case.name, dtype)
    }
    return row


def _beside(case: Case, dtype: str, document: Figures, peer: str, ours: Figures) -> Figures:
    """A peer's seconds, ours over them, and how far our results are from its."""
    theirs = _figures(document, peer, case.name, dtype)
    found = {name: theirs.get(name) for name in ("seconds", "failed", *APART)}
    if ours.get("seconds") and theirs.get("seconds"):
        found["ratio"] = ours["seconds"] / theirs["seconds"]
    if ours.get("sample") and theirs.get("sample"):
        found["apart"] = difference(ours["sample"], theirs["sample"])
    return found


def wrong(row: Figures) -> bool:
    """Whether our result is not torch eager's."""
    apart = row["peers"].get(BASELINE, {}).get("apart")
    return apart is not None and not apart <= TOLERANCES[row["dtype"]]


def verdict(row: Figures, toy: bool = False) -> str:
    """A word or two on a row; a trial says nothing about speed."""
    if row["failed"]:
        return "failed"
    if wrong(row):
        return "wrong result"
    if toy:
        return "tried"
    short = []
    share = row.get("of_copy")
    if row["aim"] and share is not None and share < row["aim"]:
        short.append(f"under {row['aim']:.0%}")
    ahead = [name for name, peer in row["peers"].items() if peer.get("ratio", 0) > 1.1]
    if ahead:
        short.append("behind " + ", ".join(ahead))
    return "; ".join(short) or "reached"


def markdown(document: Figures) -> str:
    """The parts, then the table of benchmarks."""
    gpu, at = document["gpu"], document["machine"]
    about = (
        f"{gpu['name']}, compute capability {gpu['compute_capability']}, CUDA driver "
        f"{gpu['driver']}, runtime {gpu['runtime']}, CuPy {gpu['cupy']}, "
        f"cuDNN {gpu.get('cudnn') or 'not installed'}; Python {at['python']}, "
        f"numpy {at['versions']['numpy']}, torch {at['versions']['torch']}; "
        f"{document['updated'][:10]}, commit {at['commit']}."
    )
    if document["toy"]:
        about = f"A trial of the script, at tiny sizes; no figure of a GPU. {about}"
    lines = [about, "", "| part | result | seconds |", "| --- | --- | --- |"]
    for name, figures in document["parts"].items():
        lines.append(f"| {name} | {line_of(figures)} | {figures.get('seconds', '')} |")
    return "\n".join([*lines, *_table(rows(document), document["toy"])]) + "\n"


def line_of(figures: Figures) -> str:
    """A part's verdict and summary."""
    return f"{figures['verdict']}: {figures.get('summary', '')}".rstrip(": ")


def _table(found: Sequence[Figures], toy: bool) -> Iterator[str]:
    if not found:
        return
    shown = [p for p in PEERS[1:] if any(p.name in row["peers"] for row in found)]
    heads = ["case", "type", "time", "device", "host", "first step", "GB/s", "of copy", "TFLOP/s"]
    heads += [f"to {p.title}" for p in shown] + ["verdict"]
    yield ""
    yield (
        "Time is the median of a step by CUDA events, inputs rotated beyond the cache; device is "
        "that of the GPU alone, its launches queued beforehand, host that of the calling thread. "
        "The first step compiles. GB/s count each input read once and each output written once. "
        "A ratio under 1 is lucid_gpu ahead; beside it stand the other's device and host times."
    )
    yield ""
    yield "| " + " | ".join(heads) + " |"
    yield "| --- " * len(heads) + "|"
    for row in found:
        cells = [row["title"], row["dtype"], *_cells(row)]
        cells += [_ratio(row["peers"].get(p.name)) for p in shown]
        yield "| " + " | ".join([*cells, verdict(row, toy)]) + " |"


def _cells(row: Figures) -> list[str]:
    if not row["seconds"]:
        return [str(row["failed"] or "").replace("|", "/")[:80], *[""] * 6]
    rate, share = row.get("bytes_a_second"), row.get("of_copy")
    work = row.get("operations_a_second")
    return [
        _time(row["seconds"]),
        *(_time(row[name]) for name in APART),
        f"{rate / 1e9:.0f}" if rate else "",
        f"{share:.0%}" if share else "",
        f"{work / 1e12:.1f}" if work else "",
    ]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def _ratio(peer: Figures | None) -> str:
    if not peer:
        return ""
    if "ratio" not in peer:
        return "failed"
    apart = [_time(peer[name]) for name in APART[:2] if peer[name] is not None]
    return f"{peer['ratio']:.2f}" + (f" ({', '.join(apart)})" if apart else "")
