"""Random programs of ops, then random networks: ``make fuzz ARGS="--minutes 60"``.

Each of the two tools takes half of the time. The exit status says whether either found a fault.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TOOLS = {"ops": "fuzz_ops.py", "networks": "fuzz_networks.py"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tools one after the other."""
    parser = argparse.ArgumentParser(description="Ops, then networks.", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=60, help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--only", choices=TOOLS, help="one of the two, for all of the time")
    parser.add_argument("--keep", action="store_true", help="in bench/results/endurance.md")
    args = parser.parse_args(arguments)
    chosen = [args.only] if args.only else list(TOOLS)
    shared = [f"--minutes={args.minutes / len(chosen)}", f"--seed={args.seed}"]
    status = 0
    for name in chosen:
        place = Path(__file__).with_name(TOOLS[name])
        command = [sys.executable, str(place), *shared, *["--keep"] * args.keep]
        status |= subprocess.run(command).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
