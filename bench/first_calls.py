"""The first steps of training scripts beside torch eager: ``python -m bench.first_calls``.

Each script of ``tests/scripts`` and of ``examples`` that is written for PyTorch's names begins in a
fresh process of each peer, in turn, and is stopped after some steps of its optimizers. The first
step is the time from the script's first line to the end of its first step, its data and model
included and the imports not; then that of a step, when all has been seen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench.peers import THREAD_VARIABLES, THREADS, TREE, environment
from bench.report import RESULTS, amount, machine

EXAMPLES = ("burgers", "char_gpt", "gcn", "train_digits", "vae")  # of examples/, those measured
BY_HAND = ("word_language_model",)  # no optimizer whose steps could be counted
STEPS, SEEN = 20, 10  # steps of a script, and after how many it is in its stride
PATH = RESULTS / "first-calls.json"


def scripts() -> dict[str, str]:
    """Every script's path in the tree, by name."""
    tests = sorted((TREE / "tests" / "scripts").glob("[!_]*.py"))
    paths = [path for path in tests if path.stem not in ("test_scripts", *BY_HAND)]
    paths += [TREE / "examples" / f"{name}.py" for name in EXAMPLES]
    found = [path.relative_to(TREE) for path in paths]
    return {f"{path.parent.name}/{path.stem}": path.as_posix() for path in found}


def ends(path: str, module: str, threads: int, *flags: str) -> list[float]:
    """When each of the first steps of a script ended, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-m", "bench.first_call_worker", path, module, str(STEPS), *flags],
            env=environment() | dict.fromkeys(THREAD_VARIABLES, str(threads)),
            capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
    if ran.returncode:
        raise RuntimeError(f"{path} with {module}: {ran.stderr.strip()[-2000:]}")
    found: list[float] = json.loads(ran.stdout)["ends"]
    return found


def figures(taken: Sequence[float]) -> dict[str, float | None]:
    """The first step, and the median of those after the tenth where there are so many."""
    steps = [b - a for a, b in zip(taken, taken[1:], strict=False)]
    return {"first": taken[0], "later": statistics.median(steps[SEEN:]) if steps[SEEN:] else None}


def measured(path: str, rounds: int, threads: int, *flags: str) -> dict[str, Any]:
    """Medians over the rounds, and medians of the rounds' ratios."""
    taken = [
        {m: figures(ends(path, m, threads, *flags)) for m in ("lucid_gpu", "torch")}
        for _ in range(rounds)
    ]
    row: dict[str, Any] = {}
    for part in ("first", "later"):
        pairs = [(one["lucid_gpu"][part], one["torch"][part]) for one in taken]
        whole = [(a, b) for a, b in pairs if a is not None and b is not None]
        if whole:
            ours, theirs = zip(*whole, strict=True)
            ratio = statistics.median(a / b for a, b in whole)
            row[part] = {
                "lucid_gpu": statistics.median(ours),
                "torch": statistics.median(theirs),
                "ratio": ratio,
            }
    return row


def told(row: dict[str, Any]) -> list[str]:
    """The cells of a row."""
    cells = []
    for part in ("first", "later"):
        found = row.get(part)
        cells += [amount(found[m], "s") if found else "" for m in ("lucid_gpu", "torch")]
        cells.append(f"{found['ratio']:.2f}" if found else "")
    return cells


def markdown(kept: dict[str, Any]) -> str:
    """The table, and what it was measured on."""
    here = kept["machine"]
    versions = ", ".join(f"{name} {here['versions'][name]}" for name in ("numpy", "torch"))
    head = ("script", "first step", "torch eager", "ratio", "a later step", "torch eager", "ratio")
    lines = [f"| {' | '.join([name, *told(row)])} |\n" for name, row in kept["rows"].items()]
    table = "".join(lines) + _of_kernels(kept.get("kernels"))
    return f"""\
# First steps of training scripts

Written by `python -m bench.first_calls --keep`, {kept["created"][:10]}, commit {here["commit"]}; {here["cpu"]}, {kept["threads"]}
threads, Python {here["python"]}, {versions}; medians of {kept["rounds"]} interleaved rounds. The first step is counted from the
script's first line, data and model included, imports not; a later step is the median of those after the tenth.

| {" | ".join(head)} |
|{" --- |" * len(head)}
{table}"""  # noqa: E501


def _of_kernels(kept: dict[str, Any] | None) -> str:
    """Return the table of `bench.first_kernels`."""
    if kept is None:
        return ""
    here = kept["machine"]
    rows = [
        f"| {name} | {row['kernels']} | {row['compiling']:.1f} s | {row['steps'][0]:.1f} s "
        f"| {row['steps'][-1] - row['steps'][0]:.1f} s |\n"
        for name, row in kept["rows"].items()
    ]
    return f"""
## Kernels of a GPT's first step

Written by `python tests/driver/build.py bench.first_kernels --archive FILE --keep`, commit {here["commit"]}; {here["cpu"]}, Python
{here["python"]}. CuPy and NVRTC are the real ones, CUDA's driver is a stand-in: no GPU was involved. A GPT of 6 layers in bfloat16, each row a
fresh process with an empty cache; the archive holds the hand-written kernels and those of single ops.

| `LUCID_COMPILE` | kernels that NVRTC compiled | its time, all threads | first step | the next four |
| --- | --- | --- | --- | --- |
""" + "".join(rows)  # noqa: E501


def keep(rows: dict[str, Any], settings: dict[str, Any], path: Path = PATH) -> None:
    """Write the rows beside those of scripts that were not run."""
    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    before = found.get("rows", {})
    before.update(rows)
    kept = {
        **found,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        **settings,
        "rows": {name: before[name] for name in scripts() if name in before},
    }
    write(kept, path)


def write(kept: dict[str, Any], path: Path = PATH) -> None:
    """Write the figures, and the page made of them."""
    path.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    path.with_suffix(".md").write_text(markdown(kept), "utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    known = scripts()
    flags = argparse.ArgumentParser(prog="python -m bench.first_calls", description=__doc__)
    flags.add_argument("--case", action="append", choices=list(known), metavar="FOLDER/NAME")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--threads", type=int, default=THREADS)
    flags.add_argument("--busy", action="store_true", help="one thread, and the processor's time")
    flags.add_argument("--keep", action="store_true", help="write bench/results/")
    options = flags.parse_args(argv)
    if options.busy and options.keep:
        flags.error("what is kept are times by the clock")
    threads, busy = 1 if options.busy else options.threads, ["--busy"] * options.busy
    settings = {"rounds": options.rounds, "threads": threads}
    for name in options.case or known:
        row = measured(known[name], options.rounds, threads, *busy)
        print(name, *told(row), sep="  ", flush=True)
        if options.keep:
            keep({name: row}, settings)


if __name__ == "__main__":
    main()
