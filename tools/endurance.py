"""What the long runs found: bench/results/endurance.md, which ``--keep`` of each of them writes.

The last run of each kind is kept, in endurance.json too.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
KEPT = TREE / "bench" / "results" / "endurance.json"
PARTS = ("lucid_gpu", "kernels", "tools", "examples", "tests/serialization")
TITLES = {
    "fuzz": "random programs of ops against torch (`make fuzz`)",
    "networks": "random networks, run in six ways, against torch (`make fuzz`)",
    "checkpoints": "damaged checkpoints (`make fuzz-checkpoints`)",
    "soak": "training killed and resumed (`make soak`)",
    "loops": "loops as people write them (`python -m bench.loops --memory`)",
}


class Run:
    """A run from its beginning, with the commit that it began with.

    Parameters
    ----------
    kind : str
        Of `TITLES`.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.seed, self.commit, self.start = kind, seed, commit(), time.monotonic()

    def continued(self, **facts: Any) -> dict[str, Any]:
        """The kept run that this one goes on with: of the same commit, seed and facts, or {}."""
        same = {"seed": self.seed, "commit": self.commit, **facts}
        last: dict[str, Any] = read().get(self.kind, {})
        return last if all(last.get(name) == value for name, value in same.items()) else {}

    def keep(self, done: str, found: str, minutes: float = 0.0, **facts: Any) -> None:
        """Write down what was done and found, beside the other kinds' last runs.

        ``minutes`` are those of the runs that this one went on with.
        """
        peak = max(
            resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        kept = read()
        kept[self.kind] = {
            "done": done, "found": found, "seed": self.seed, "commit": self.commit,
            "ended": datetime.now(timezone.utc).isoformat(timespec="minutes"),
            "minutes": round(minutes + (time.monotonic() - self.start) / 60, 1),
            "peak_bytes": peak * (1 if sys.platform == "darwin" else 1024),
            "python": platform.python_version(), **facts,
        }  # fmt: skip
        for path, text in (
            (KEPT, json.dumps(kept, indent=1) + "\n"),
            (KEPT.with_suffix(".md"), table(kept)),
        ):
            part = path.with_name(f".{path.name}.part")
            part.write_text(text)
            os.replace(part, path)


def read() -> dict[str, Any]:
    """What is kept, by kind."""
    found: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return found


def commit() -> str:
    """The tree's commit, marked where what runs differs from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(TREE), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *PARTS)
        return git("rev-parse", "--short=12", "HEAD") + "+changes" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def table(kept: dict[str, Any]) -> str:
    """What is kept, in Markdown."""
    rows = [
        f"| {title} | {run['done']} | {run['found']} | {run['minutes']:g} min | "
        f"{run['peak_bytes'] / 1e6:.0f} MB | {run['commit']}, seed {run['seed']}, "
        f"{run['ended'][:10]} |"
        for kind, title in TITLES.items()
        if (run := kept.get(kind))
    ]
    return "\n".join([
        "Written by the tools themselves, with `--keep`: the last run of each kind.\n",
        "| run | done | found | took | peak memory of a process | commit, seed, day |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip
