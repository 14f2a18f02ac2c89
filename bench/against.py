"""A run beside a kept one: which cases became slower, as ratios to the peer measured with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.report import ratios

LEAST = 1.05  # less than a twentieth is no change: two processes never lie alike in memory


@dataclass(frozen=True)
class Change:
    """A case's ratios to its baseline, as quartiles, in the kept run and in this one."""

    name: str
    title: str
    before: tuple[float, float, float]
    after: tuple[float, float, float]

    @property
    def times(self) -> float:
        """The new median ratio over the kept one."""
        return self.after[1] / self.before[1]

    @property
    def slower(self) -> bool:
        """Whether the middle halves of both runs' rounds lie apart, and the medians by `LEAST`."""
        return self.after[0] > self.before[2] and self.times > LEAST

    @property
    def faster(self) -> bool:
        """The same the other way."""
        return self.after[2] < self.before[0] and self.times < 1 / LEAST

    def __str__(self) -> str:
        word = "SLOWER" if self.slower else "faster" if self.faster else "as before"
        runs = [f"{mid:.3g} ({low:.3g} to {high:.3g})" for low, mid, high in self.both]
        return f"{word:<10} x {self.times:<5.3g} {self.name:<18} {runs[1]}, kept {runs[0]}"

    @property
    def both(self) -> tuple[tuple[float, float, float], ...]:
        """The kept run's quartiles, then this one's."""
        return self.before, self.after


def changes(kept: dict[str, Any], run: dict[str, Any]) -> tuple[list[Change], list[str]]:
    """Every case of the run that both files can compare, and the names of the others."""
    before = {entry["name"]: quartiles(entry) for entry in kept["cases"]}
    found, others = [], []
    for entry in run["cases"]:
        old, new = before.get(entry["name"]), quartiles(entry)
        if old and new:
            found.append(Change(entry["name"], entry["title"], old, new))
        else:
            others.append(entry["name"])
    return found, others


def quartiles(entry: dict[str, Any]) -> tuple[float, float, float] | None:
    """Quartiles over the rounds of lucid_gpu's figure over the baseline's."""
    found = ratios(entry["peers"], entry["baseline"])
    if not found:
        return None
    low, middle, high = (float(q) for q in np.percentile(found, [25, 50, 75]))
    return low, middle, high


def compare(kept: dict[str, Any], run: dict[str, Any], say: Callable[[str], None] = print) -> bool:
    """Say what changed since the kept run; whether something is slower, or nothing compares."""
    found, others = changes(kept, run)
    old, new = kept["machine"], run["machine"]
    say(f"beside the run of {kept['created'][:10]}, commit {old['commit']}; ratios to the baseline")
    for name, version in new["versions"].items():
        if version != old["versions"].get(name):
            say(f"note: {name} was {old['versions'].get(name)} and is {version}")
    for change in found:
        say(str(change))
    if others:
        say(f"not compared, for a run lacks them or their baseline: {', '.join(others)}")
    slower = [change.name for change in found if change.slower]
    say(f"slower: {', '.join(slower)}" if slower else "nothing is slower")
    return bool(slower) or not found
