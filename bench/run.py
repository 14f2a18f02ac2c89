"""The command line: choose cases and peers, run, show, write."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from bench import report
from bench.against import compare
from bench.cases import CASES
from bench.peers import PEERS, SUBJECT, installed, named, older
from bench.rounds import run_case
from lucid_gpu.devices import cupy_backend
from tools import as_processor

GPU_BURST = 20  # steps between two waits for the GPU


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    flags.add_argument("--case", action="append", metavar="NAME", help="one case; may be repeated")
    flags.add_argument("--peers", metavar="A,B", help="peers, by commas, or: all")
    flags.add_argument("--rounds", type=int, default=15, help="interleaved rounds (15)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write the figures there")
    flags.add_argument("--name", help="name of the files in bench/results/")
    flags.add_argument("--no-results", action="store_true", help="leave bench/results/ alone")
    flags.add_argument(
        "--processor",
        choices=list(as_processor.KEPT),
        help="as on an older one: with AVX2 and no AVX-512, or without AVX",
    )
    flags.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(cpu)")
    flags.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    flags.add_argument(
        "--against",
        nargs="?",
        type=Path,
        const=report.RESULTS / "cpu.json",
        metavar="FILE",
        help="compare with a kept run (bench/results/cpu.json); exit 1 when something is slower",
    )
    flags.add_argument("--list", action="store_true", help="list cases and peers")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the flags say; 1 when a result is wrong, or what the flags ask for is missed."""
    flags = parser()
    options = flags.parse_args(argv)
    if options.list:
        show_lists()
        return 0
    if options.rounds < 1:
        flags.error("--rounds must be at least 1")
    if options.processor:
        older.update(as_processor.environment(options.processor))
    kept = None
    try:
        kept = json.loads(options.against.read_text("utf-8")) if options.against else None
        cases = named(CASES, options.case or [c.name for c in CASES], "case")
        usual = [p.name for p in PEERS if p.usual]
        wanted = options.peers.split(",") if options.peers else usual
        peers = PEERS if wanted == ["all"] else named(PEERS, wanted, "peer")
    except (ValueError, OSError) as error:
        flags.error(str(error))
    if options.device == "cuda":
        no_gpu = cupy_backend.problem()
        if no_gpu is not None:
            flags.error(f"--device cuda: {no_gpu}")
        for peer in peers:
            if not peer.on_gpus:
                print(f"{peer.title} computes on the CPU here and is left out", file=sys.stderr)
        peers = tuple(p for p in peers if p.on_gpus)
    missing = {p.module for p in peers if not installed(p.module)}
    for module in sorted(missing):
        print(f"{module} is not installed; its peers are left out", file=sys.stderr)
    peers = tuple(p for p in peers if p.module not in missing)
    if not peers:
        print("no peer is left; make bench installs them, --list names them", file=sys.stderr)
        return 2
    rows = []
    for case in cases:
        print(case.title)
        if options.device == "cpu":
            figures = run_case(case, peers, options.rounds)
        else:  # the targets are the CPU's
            case = replace(case, at_most=None, compiled_at_most=None)
            figures = run_case(case, peers, options.rounds, options.device, burst=GPU_BURST)
        rows.append(report.row(case, figures))
        print_row(rows[-1])
    plain = options.device == "cpu" and not (options.case or options.processor)
    whole = plain and {p.name for p in peers} >= set(usual)
    run = report.document(rows, options.rounds, options.processor)
    name = options.name or (f"cpu-{datetime.now(timezone.utc):%Y-%m-%d}" if whole else "partial")
    written = [] if options.no_results else report.write(run, report.RESULTS / name)
    if options.json:
        options.json.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        written.append(options.json)
    print("\n" + report.markdown(run))
    print("written:", *written)
    slower = compare(kept, run) if kept else False
    return int(slower or exit_code(rows, options.strict))


def exit_code(rows: Sequence[dict[str, object]], strict: bool) -> int:
    """1 for a failure of lucid_gpu's; with ``strict`` for a missed target too."""
    bad = {"failed", "missed"} if strict else {"failed"}
    return int(any(entry["verdict"] in bad for entry in rows))


def print_row(entry: dict[str, object]) -> None:
    """One case's figures, a line a peer."""
    peers = entry["peers"]
    assert isinstance(peers, dict)
    for name, figures in peers.items():
        text = figures.get("failed") or report.cell(figures, str(entry["unit"]))
        print(f"  {report.TITLES[name]:<24} {text}")
    if SUBJECT in peers:
        print(f"  {entry['verdict']}: {report.target(entry)}")


def show_lists() -> None:
    """Print the cases and the peers."""
    for case in CASES:
        print(f"case {case.name:<16} {case.title}")
    for peer in PEERS:
        print(f"peer {peer.name:<16} {peer.title}{'' if peer.usual else ' (when named)'}")


if __name__ == "__main__":
    sys.exit(main())
