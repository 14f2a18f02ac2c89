"""How many kernels each block of the benchmark list launches and how many bytes they move.

Counted, not measured: the cases of `bench.gpu_cases` run at small sizes as CUDA C on the host
(``LUCID_EXECUTOR=host-cuda``). The launcher counts launches and the profiler bytes, each array that
a kernel reads or writes once. The minimum is each input read once and each output written once.

Loops (`bench.loop_programs`) run in a process of their own each, which counts the kernels that were
compiled in their first steps and later: a loop whose steps do the same compiles nothing after its
third.

``python -m bench.plan`` writes ``bench/results/plan.md``; ``--check`` says whether it is true.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

os.environ["LUCID_EXECUTOR"] = "host-cuda"  # before anything is compiled for another executor

import lucid_gpu
from bench import loop_worker
from bench.gpu_cases import CASES, Case, Kit, force
from bench.loop_programs import PROGRAMS
from bench.loop_report import count as made
from bench.loops import planned
from bench.report import RESULTS
from lucid_gpu.launch.host import HostLauncher

PATH = RESULTS / "plan.md"
DTYPES = ("float32", "bfloat16")
STEPS, SETTLED = 20, loop_worker.WARM
WARM = 3  # steps before the one that is counted: programs are built, an optimizer has its state

# Large enough that what is one number or one row a tensor is no part of the ratio.
SIZES = {
    "column-sum": (4096, 512),
    "full-sum": (1 << 20,),
    "adam": (100, 4096),
    "mlp": (16, 64, 16),
    "gpt": (2, 16, 32, 2, 2, 64),
    "launch": (64, 64),
}
_ROWS = (128, 512)

HEAD = """\
# What is launched and moved

Written by `python -m bench.plan`; a test compares it with what runs. Each block of the benchmark
list runs at a small size as CUDA C on the host. Kernels are launches, products are those that
cuBLAS computes on a GPU, bytes are those of the arrays a kernel or product reads and writes, each
once. The minimum reads each input once and writes each output once; a whole step has none.

| block | type | size | kernels | fewest | products | bytes | minimum | ratio |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


LOOPS = f"""
## Kernels that loops compile

{STEPS} steps of each of the loops of `bench/loop_programs.py`. Lengths of sequences and sizes of
batches are others in every step: what a kernel depends on are classes of layout, such as that of a
batch of one.

| loop | kernels in steps 1 to {SETTLED} | after step {SETTLED} |
| --- | --- | --- |
"""


class Row(NamedTuple):
    """One block in one type."""

    case: str
    dtype: str
    size: tuple[int, ...]
    kernels: int
    fewest: int | None
    products: int
    moved: int
    least: int | None

    @property
    def ratio(self) -> float | None:
        """Bytes moved over the fewest."""
        return self.moved / self.least if self.least else None


class Count:
    """An observer, and a stand in front of the launcher: launches, products, bytes."""

    def __init__(self) -> None:
        self.launches = self.products = self.moved = 0

    def begin(self, kernel: Any) -> None:
        pass

    def end(self, token: None, kernel: Any) -> None:
        self.products += kernel.name == "matmul"
        self.moved += kernel.bytes_read + kernel.bytes_written

    def __enter__(self) -> Count:
        from lucid_gpu.launch.observers import observers

        self.start = start = HostLauncher.start

        def counted(launcher: HostLauncher, *arguments: Any) -> None:
            self.launches += 1
            start(launcher, *arguments)

        HostLauncher.start = counted  # type: ignore[assignment, method-assign]
        observers.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        from lucid_gpu.launch.observers import observers

        observers.remove(self)
        HostLauncher.start = self.start  # type: ignore[method-assign]


def size_of(case: Case) -> tuple[int, ...]:
    """The size a case is counted at."""
    if case.name in SIZES:
        return SIZES[case.name]
    return {1: (1 << 14,), 2: _ROWS}.get(len(case.toy), case.toy)


def count(case: Case, dtype: str) -> Row:
    """Run a case and count."""
    kit = Kit(lucid_gpu, "cpu", dtype, size_of(case), WARM + 1)
    step = case.build(kit)
    for i in range(WARM):
        force(kit, step(i))
    with Count() as counted:
        results = step(WARM)
        force(kit, results)
    least = case.least(kit) if case.least else None
    found = counted.launches, case.kernels, counted.products, counted.moved, least
    return Row(case.name, dtype, kit.size, *found)


def rows() -> Iterator[Row]:
    """Every block of the list but convolutions' products and copies, which are NumPy's here."""
    for case in CASES:
        if case.name.startswith(("convolution", "permuted-copy")):
            continue
        for dtype in DTYPES:
            if dtype in case.dtypes:
                yield count(case, dtype)


def line(row: Row) -> str:
    """A row of the table."""
    size = " x ".join(map(str, row.size))
    least = "" if row.least is None else f"{row.least:,}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    fewest = "" if row.fewest is None else row.fewest
    cells = [row.case, row.dtype, size, row.kernels, fewest, row.products]
    cells += [f"{row.moved:,}", least, ratio]
    return "| " + " | ".join(map(str, cells)) + " |"


def loops() -> Iterator[str]:
    """A line for each loop: the kernels it compiles, and how many of them late."""
    for name in PROGRAMS:
        entry = planned(name, STEPS, LUCID_EXECUTOR="host-cuda")
        late = made(entry, "kernels", SETTLED)
        yield f"| {name} | {made(entry, 'kernels') - late} | {late} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table, or compare: 1 where the file says otherwise."""
    flags = argparse.ArgumentParser(prog="python -m bench.plan", description=__doc__)
    flags.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = flags.parse_args(argv)
    text = HEAD + "".join(line(row) + "\n" for row in rows())
    text += LOOPS + "".join(line + "\n" for line in loops())
    if not options.check:
        PATH.write_text(text, "utf-8")
        print(text, end="")
        return 0
    before = PATH.read_text("utf-8") if PATH.exists() else ""
    stale = sorted(set(text.splitlines()) ^ set(before.splitlines()))
    if stale:
        print("\n".join([*stale, f"{PATH.name} is stale: run python -m bench.plan"]))
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
