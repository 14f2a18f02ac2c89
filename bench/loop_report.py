"""Whole loops in ``bench/results/loops.json`` and ``loops.md``: a table a class of processors."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench.loop_worker import WARM
from bench.report import RESULTS, amount, machine

PATH = RESULTS / "loops.json"
PARTS = ("whole", "last")
AIM, BAR = {"whole": 2.0, "last": 1.0}, {"whole": 4.0, "last": 2.0}  # of torch's time
CLASSES = {
    "avx512": "as the processor is, with AVX-512",
    "avx2": "as a processor with AVX2 and no AVX-512",
    "sse": "as a processor without AVX",
}
TITLES = {
    "adam": "Adam by hand",
    "statistics": "running mean and variance",
    "lion": "Lion",
    "weight-average": "averages of weights",
    "recurrence": "recurrence by hand, lengths of 5 to 60",
    "runge-kutta": "Runge-Kutta with gradient",
    "bisection": "bisection over `where`",
    "batches": "batches of 1 to 64",
    "langevin": "Langevin",
    "gradient-penalty": "gradient penalty",
}


def summary(entry: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a program's runs: medians, ratios, what was planned and how late."""
    times = entry["times"]
    kept: dict[str, Any] = {"name": entry["name"], "apart": entry["apart"]}
    for part in ("import", *PARTS):
        kept[part] = {peer: median(entry, peer, part) for peer in times}
    for part in PARTS:
        kept[part]["ratio"] = ratio(entry, part)
    kinds = entry["made"]["kinds"]
    kept["made"] = {kind: count(entry, kind) for kind in kinds}
    kept["late"] = {kind: count(entry, kind, WARM) for kind in kinds}
    return kept


def median(entry: dict[str, Any], peer: str, part: str) -> float:
    """Seconds of a part of the loop, the median of the rounds."""
    return statistics.median(taken[part] for taken in entry["times"][peer])


def ratio(entry: dict[str, Any], part: str) -> float | None:
    """The median over the rounds of lucid_gpu's time over torch's."""
    ours, theirs = (entry.get("times", {}).get(peer) for peer in ("lucid", "torch"))
    if not ours or not theirs:
        return None
    return statistics.median(a[part] / b[part] for a, b in zip(ours, theirs, strict=True))


def count(entry: dict[str, Any], kind: str, begin: int = 0) -> int:
    """How many were made in the steps from ``begin`` on."""
    return sum(_of_steps(entry, kind)[begin:])


def late(entry: dict[str, Any], kind: str) -> list[int]:
    """The steps after the third that made something."""
    return [i for i, n in enumerate(_of_steps(entry, kind)) if i >= WARM and n]


def _of_steps(entry: dict[str, Any], kind: str) -> list[int]:
    made = entry["made"]
    k = made["kinds"].index(kind)
    found: list[int] = [step[k] for step in made["steps"][:-1]]  # the last reads the results
    return found


def verdict(row: dict[str, Any]) -> str:
    """Whether a row reaches the aim, or the bar at least."""
    for word, most in (("aim", AIM), ("bar", BAR)):
        if all(row[part]["ratio"] <= most[part] for part in PARTS):
            return word
    return "missed"


def keep(
    processor: str, rows: Sequence[dict[str, Any]], settings: dict[str, Any], path: Path = PATH
) -> None:
    """Put rows into the table of a class of processors; its other rows stay as they are."""
    tables = json.loads(path.read_text("utf-8")) if path.exists() else {}
    before = {row["name"]: row for row in tables.get(processor, {}).get("rows", ())}
    before.update({row["name"]: row for row in rows})
    tables[processor] = {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        **settings,
        "rows": [before[name] for name in TITLES if name in before],
    }
    tables = {name: tables[name] for name in CLASSES if name in tables}
    path.write_text(json.dumps(tables, indent=1) + "\n", "utf-8")
    path.with_suffix(".md").write_text(markdown(tables), "utf-8")


HEAD = f"""\
# Whole loops from a fresh process

Written by `python -m bench.loops --keep`. {{steps}} steps of small programs as people write them
(`bench/loop_programs.py`), each once in a fresh process: the whole time, first calls included and
the import apart, and that of the last quarter with the reading of the results. At most
{AIM["whole"]:g} and {AIM["last"]:g} times torch's is the aim, {BAR["whole"]:g} and
{BAR["last"]:g} the bar. Late are programs, plans and kernels that lucid_gpu made after step {WARM}.
"""

COLUMNS = (
    ("program", "lucid_gpu, whole", "torch eager", "ratio", "lucid_gpu, last quarter")
    + ("torch eager", "ratio", "programs late", "plans late", "kernels late", "verdict")
)  # fmt: skip


def markdown(tables: dict[str, Any]) -> str:
    """Every class's table, each with what it was measured on."""
    steps = "; ".join(dict.fromkeys(str(table["steps"]) for table in tables.values()))
    return HEAD.format(steps=steps) + "".join(
        _table(title, tables[name]) for name, title in CLASSES.items() if name in tables
    )


def _table(title: str, table: dict[str, Any]) -> str:
    here = table["machine"]
    versions = ", ".join(f"{name} {here['versions'][name]}" for name in ("numpy", "torch"))
    rule = " --- |" * len(COLUMNS)
    return (
        f"\n## {here['cpu']}, {title}\n\n{table['created'][:10]}, commit {here['commit']}; "
        f"{table['threads']} threads, Python {here['python']}, {versions}; medians of "
        f"{table['rounds']} interleaved rounds.\n\n"
        f"| {' | '.join(COLUMNS)} |\n|{rule}\n" + "".join(map(_line, table["rows"]))
    )


def _line(row: dict[str, Any]) -> str:
    cells = [TITLES[row["name"]]]
    for part in PARTS:
        cells += [amount(row[part][peer], "s") for peer in ("lucid", "torch")]
        cells.append(f"{row[part]['ratio']:.2f}")
    cells += [str(row["late"][kind]) for kind in ("programs", "plans", "kernels")]
    return f"| {' | '.join([*cells, verdict(row)])} |\n"
