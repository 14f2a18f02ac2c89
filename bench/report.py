"""A run's results as data, as a Markdown table, and as a picture."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.cases import Case
from bench.peers import BASELINE, COMPILED, PEERS, SUBJECT, THREADS, TREE
from bench.rounds import NOISY

RESULTS = TREE / "bench" / "results"
VERSIONS = ("numpy", *dict.fromkeys(p.module for p in PEERS if p.name != SUBJECT))
TITLES = {p.name: p.title for p in PEERS}
COLORS = {p.name: f"C{index}" for index, p in enumerate(PEERS)}


def row(case: Case, figures: dict[str, Any]) -> dict[str, Any]:
    """One case's figures with its ratios, targets and verdict."""
    entry: dict[str, Any] = {
        "name": case.name,
        "title": case.title,
        "measure": case.measure,
        "unit": case.unit,
        "at_most": case.at_most,
        "compiled_at_most": case.compiled_at_most,
        "baseline": case.baseline,
        "peers": figures,
        "to_eager": ratio(figures, BASELINE),
        "to_baseline": ratio(figures, case.baseline),
        "to_compile": ratio(figures, COMPILED),
    }
    entry["verdict"] = verdict(entry)
    entry["noisy"] = any(f.get("spread", 0) > NOISY for f in figures.values())
    return entry


def ratio(figures: dict[str, Any], base: str, peer: str = SUBJECT) -> float | None:
    """The median over the rounds of a peer's figure over the base's, where both are there.

    The two figures of a round lie within a second of each other, so a machine that is slow for a
    minute slows both; the ratio of the two medians would compare different minutes.
    """
    found = ratios(figures, base, peer)
    return statistics.median(found) if found else None


def ratios(figures: dict[str, Any], base: str, peer: str = SUBJECT) -> list[float]:
    """A peer's figure over the base's in each round; none where one of them is missing."""
    ours, theirs = (figures.get(name, {}).get("samples", ()) for name in (peer, base))
    if not ours or len(ours) != len(theirs) or not all(theirs):
        return []
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def verdict(entry: dict[str, Any]) -> str:
    """``pass`` or ``missed`` where there is a target and a figure for it."""
    ours = entry["peers"].get(SUBJECT)
    if ours is None:
        return "not measured"
    if "failed" in ours:
        return "failed"
    relative = entry["measure"] == "time"
    pairs = [
        (entry["to_baseline"] if relative else ours.get("median"), entry["at_most"]),
        (entry["to_compile"], entry["compiled_at_most"]),
    ]
    pairs = [(value, most) for value, most in pairs if most is not None]
    if not pairs:
        return "no target"
    if any(value is None for value, _ in pairs):
        return "not measured"
    return "pass" if all(value <= most for value, most in pairs) else "missed"


def machine() -> dict[str, Any]:
    """What the figures depend on; no names of machines or people."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "huge_pages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "python": platform.python_version(),
        "threads": THREADS,
        "versions": {name: version_of(name) for name in VERSIONS},
        "commit": _commit(),
    }


def version_of(package: str) -> str | None:
    """An installed package's version."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    for line in (
        Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    ):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def _commit() -> str | None:
    """The tree's commit, marked where lucid_gpu differs from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(TREE), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "lucid_gpu", "bench", "kernels")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def document(
    rows: Sequence[dict[str, Any]], rounds: int, processor: str | None = None
) -> dict[str, Any]:
    """A whole run, of a machine as it is or as an older processor: ``"avx2"``, ``"sse"``."""
    now = datetime.now(timezone.utc)
    here = machine()
    if processor:
        here["cpu"] += f" as {AS[processor]}"
    return {
        "created": now.isoformat(timespec="seconds"),
        "rounds": rounds,
        "machine": here,
        "cases": list(rows),
    }


AS = {"avx2": "with AVX2 and no AVX-512", "sse": "without AVX"}


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """The factor and the name of the unit in which a person reads a figure."""
    if unit != "s":
        return 1, unit
    for factor, name in ((1.0, "s"), (1e3, "ms")):
        if abs(value) * factor >= 1:
            return factor, name
    return 1e6, "us"


def amount(value: float, unit: str) -> str:
    """A figure with its unit."""
    factor, name = scale_of(value, unit)
    return f"{value * factor:.3g} {name}"


def cell(figures: dict[str, Any] | None, unit: str) -> str:
    """A peer's median with its quartiles, or why there is none."""
    if not figures:
        return ""
    if "failed" in figures:
        return "failed"
    if "median" not in figures:
        return ""
    factor, name = scale_of(figures["median"], unit)
    low, middle, high = (f"{figures[k] * factor:.3g}" for k in ("low", "median", "high"))
    return f"{middle} {name} ({low} to {high})"


def target(entry: dict[str, Any]) -> str:
    """A case's targets in words."""
    if entry["at_most"] is None:
        return ""
    if entry["measure"] == "time":
        text = f"{entry['at_most']:g} of {'eager' if _to_torch(entry) else _other(entry)}"
    else:
        text = amount(entry["at_most"], entry["unit"])
    if entry["compiled_at_most"] is not None:
        text += f", {entry['compiled_at_most']:g} of compile"
    return text


def _to_torch(entry: dict[str, Any]) -> bool:
    return _baseline(entry) == BASELINE


def _other(entry: dict[str, Any]) -> str:
    return TITLES[entry["baseline"]]


def markdown(run: dict[str, Any]) -> str:
    """The table, with what it was measured on."""
    names = [p.name for p in PEERS if any(p.name in c["peers"] for c in run["cases"])]
    head = ["case", *(TITLES[n] for n in names), "to eager", "to compile", "at most", "verdict"]
    lines = [_preamble(run), "", _line(head), _line(["---"] * len(head))]
    notes = []
    for entry in run["cases"]:
        cells = [cell(entry["peers"].get(n), entry["unit"]) for n in names]
        ratios = [_number(entry["to_eager"]), _number(entry["to_compile"])]
        if not _to_torch(entry) and entry["to_baseline"] is not None:
            ratios[0] = f"{_number(entry['to_baseline'])} of {_other(entry)}"
        word = entry["verdict"] + (" (noisy)" if entry["noisy"] else "")
        lines.append(_line([entry["title"], *cells, *ratios, target(entry), word]))
        for name, figures in entry["peers"].items():
            if "failed" in figures:
                notes.append(f"- {entry['title']}, {TITLES[name]}: {figures['failed']}")
    errors = [
        f"{entry['peers'][SUBJECT]['error']:.1e} ({entry['name']})"
        for entry in run["cases"]
        if "error" in entry["peers"].get(SUBJECT, {})
    ]
    if errors:
        lines += [
            "",
            "lucid_gpu's results differ from theirs by, relative to the largest value: ",
        ]
        lines[-1] += ", ".join(errors) + "."
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _preamble(run: dict[str, Any]) -> str:
    at = run["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in at["versions"].items() if v)
    where = f"{at['cpu']}, {at['threads']} threads, Python {at['python']}, {versions}"
    return (
        f"{run['created'][:10]}, commit {at['commit']}; {where}; "
        f"medians of {run['rounds']} interleaved rounds or more (quartiles)."
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def chart(run: dict[str, Any], path: Path) -> None:
    """Bars of every peer's time over the baseline's, with lucid_gpu's targets, on a log scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    entries = [c for c in run["cases"] if "median" in c["peers"].get(_baseline(c), {})]
    names = [p.name for p in PEERS if any("median" in e["peers"].get(p.name, {}) for e in entries)]
    if not entries:
        return
    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.75 * len(entries)), layout="constrained")
    height = 0.8 / len(names)
    for index, name in enumerate(names):
        bars = [_relative(e, name) for e in entries]
        places = [i + (index - (len(names) - 1) / 2) * height for i in range(len(entries))]
        drawn = axes.barh(places, bars, height, label=TITLES[name], color=COLORS[name])
        labels = ["" if math.isnan(b) else f"{b:.3g}" for b in bars]
        axes.bar_label(drawn, labels=labels, padding=3, fontsize=7)
    marks = [(_target_ratio(e), i) for i, e in enumerate(entries)]
    for place, (most, i) in enumerate((m, i) for m, i in marks if m is not None):
        label = None if place else "lucid_gpu's target"
        axes.plot([most, most], [i - 0.45, i + 0.45], "k--", linewidth=1, label=label)
    axes.axvline(1, color="0.6", linewidth=0.8)
    least = min(b for e in entries for n in names if (b := _relative(e, n)) > 0)
    lowest = min([least, *(m for e in entries if (m := _target_ratio(e)) is not None)])
    axes.set(
        xscale="log",
        xlim=(lowest / 2, None),
        xlabel="relative to torch eager, of NumPy's programs to HIPS autograd (less is better)",
    )
    axes.set_yticks(range(len(entries)), [e["title"] for e in entries], fontsize=8)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    figure.legend(fontsize=8, loc="outside upper center", ncols=len(names) + 1)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _baseline(entry: dict[str, Any]) -> str:
    return str(entry.get("baseline", BASELINE))  # older files name none


def _relative(entry: dict[str, Any], name: str) -> float:
    found = ratio(entry["peers"], _baseline(entry), name)
    return math.nan if found is None else found


def _target_ratio(entry: dict[str, Any]) -> float | None:
    if entry["at_most"] is None:
        return None
    if entry["measure"] == "time":
        return float(entry["at_most"])
    return float(entry["at_most"] / entry["peers"][_baseline(entry)]["median"])


def write(run: dict[str, Any], stem: Path) -> list[Path]:
    """Write ``stem``.json, .md and, where matplotlib is installed, .png; the files there are."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + ending) for ending in (".json", ".md", ".png")]
    paths[0].write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    paths[1].write_text(markdown(run), encoding="utf-8")
    try:
        chart(run, paths[2])
    except ImportError:
        print("no chart: matplotlib is missing; make bench installs it")
    return [p for p in paths if p.exists()]
