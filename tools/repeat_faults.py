"""Runs each row of the table of faults many times: each must end as written, and leave nothing.

``PYTHONPATH=. python tools/repeat_faults.py --rounds 50 --minutes 60`` runs all rows in turn, and
prints how often each has passed. A process, a segment of shared memory or a file that a run leaves
counts as a failure.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

from tests.distributed.test_faults import CASES, check

MARK = "LUCID_REPEATED_FAULT"  # in the environment of all that a run starts


def marked(value: str) -> list[str]:
    """The processes that a run has started and that still live, as their command lines."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={value}".encode() not in (place / "environ").read_bytes():
                continue
            if place.name != str(os.getpid()):
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                found.append(f"process {place.name}: {command}")
        except OSError:  # it has ended, or is another user's
            continue
    return found


def left_by(value: str, folder: Path) -> list[str]:
    """What a run has left, once what is about to end has had five seconds."""
    end = time.monotonic() + 5
    while (found := marked(value)) and time.monotonic() < end:
        time.sleep(0.1)
    return found + [f"file {path}" for path in folder.rglob("*")]


def main() -> int:
    """Run the rows, and print the table; the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no round later")
    parser.add_argument("--show", type=int, default=2000, help="characters of a failure to print")
    parser.add_argument("--launchers", nargs="*", help="rows of these alone")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.launchers or case[0] in options.launchers]
    begun = time.monotonic()
    passed: Counter[tuple[str, int, str]] = Counter()
    failed: Counter[tuple[str, int, str]] = Counter()
    slowest: dict[tuple[str, int, str], float] = {}
    for number in range(options.rounds):
        if time.monotonic() - begun > 60 * options.minutes:
            break
        for case in cases:
            value, start = uuid.uuid4().hex, time.monotonic()
            os.environ[MARK] = value
            with tempfile.TemporaryDirectory() as folder:
                os.environ["TMPDIR"] = folder
                try:
                    check(*case)
                    left = left_by(value, Path(folder))
                    assert not left, "\n".join(left)
                    passed[case] += 1
                except Exception as error:  # the table goes on: this is what it counts
                    failed[case] += 1
                    print(f"round {number}, {case}: {error}"[: options.show], flush=True)
            slowest[case] = max(slowest.get(case, 0.0), time.monotonic() - start)
    print(f"{'launcher':10}{'ranks':6}{'row':16}{'passed':>7}{'failed':>7}{'slowest, s':>12}")
    for case in cases:
        print(
            f"{case[0]:10}{case[1]:<6}{case[2]:16}{passed[case]:7}{failed[case]:7}"
            f"{slowest.get(case, 0.0):12.1f}"
        )
    return sum(failed.values())


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
