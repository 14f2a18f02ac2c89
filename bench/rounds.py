"""The parent: a process for each peer, rounds asked of them in turn, results compared."""

from __future__ import annotations

import contextlib
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import Case
from bench.peers import Peer, environment
from bench.size import installed_bytes

START_SECONDS = 300.0  # torch.compile compiles while it checks and warms up
ROUND_SECONDS = 120.0
NOISY = 0.2  # quartiles further apart than this part of the median: take more rounds


class WorkerError(Exception):
    """A peer could not do what it was asked; the message is its own sentence."""


class Worker:
    """A peer's process."""

    def __init__(self, peer: Peer, case: Case, device: str = "cpu") -> None:
        self.peer = peer
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", peer.name, case.name, device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(peer),
        )

    def ask(self, do: str, timeout: float = ROUND_SECONDS, **arguments: Any) -> dict[str, Any]:
        """Send one order and wait for its answer.

        Raises
        ------
        WorkerError
            When the peer fails, dies, or does not answer in time.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin and stdout
        try:
            stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise WorkerError(f"its process ended with code {self.process.wait()}") from None
        # One answer an order, so nothing can lie unread in the text layer's buffer.
        if not select.select([stdout], [], [], timeout)[0]:
            self.close()
            raise WorkerError(f"no answer to {do!r} within {timeout:.0f} s")
        line = stdout.readline()
        if not line:
            raise WorkerError(f"its process ended with code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):  # an order it never read
                if pipe:
                    pipe.close()


Say = Callable[[str], None]


def run_case(
    case: Case,
    peers: Sequence[Peer],
    rounds: int,
    device: str = "cpu",
    round_seconds: float = 0.1,
    burst: int = 1,
    say: Say = print,
) -> dict[str, Any]:
    """Measure one case with every peer.

    Returns
    -------
    dict
        ``{peer name: figures}``; figures hold ``median``, ``low``, ``high`` (quartiles) and
        ``samples``, or ``failed`` with a sentence.
    """
    able = [p for p in peers if p.name in case.peers]
    taking_part = [p for p in able if case.compiles or not p.compiled]
    if case.measure == "fresh":
        return fresh_times(case, taking_part, rounds)
    if case.measure == "size":
        return sizes(taking_part)
    if case.measure == "memory":
        return {p.name: peak_memory(case, p, device, min(rounds, 3)) for p in taking_part}
    return step_times(case, taking_part, rounds, device, round_seconds, burst, say)


def step_times(
    case: Case,
    peers: Sequence[Peer],
    rounds: int,
    device: str,
    round_seconds: float,
    burst: int,
    say: Say,
) -> dict[str, Any]:
    """Seconds a step; rounds of the peers are interleaved."""
    figures: dict[str, Any] = {p.name: {} for p in peers}
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for peer in peers:
                say(f"  {peer.title}: starting")
                worker, checked = Worker(peer, case, device), Worker(peer, case, device)
                if _attempt(figures[peer.name], partial(_prepare, worker, checked, folder)):
                    workers.append(worker)
                else:
                    worker.close()
            say(f"  {rounds} rounds")
            samples = interleave(workers, figures, rounds, round_seconds, burst)
        finally:
            for worker in workers:
                worker.close()
        compare(case, figures, Path(folder))
    for name, taken in samples.items():
        if taken and "failed" not in figures[name]:
            figures[name].update(summary([s["median"] for s in taken]))
            figures[name]["mean"] = statistics.fmean(s["mean"] for s in taken)
    return figures


def _prepare(worker: Worker, checked: Worker, folder: str) -> dict[str, Any]:
    """Results for the comparison come from a process of their own; see bench/README.md."""
    try:
        answer = checked.ask("version", START_SECONDS)
        checked.ask("check", START_SECONDS, path=f"{folder}/{worker.peer.name}.npz")
    finally:
        checked.close()
    worker.ask("warm", START_SECONDS, seconds=0.5)
    return answer


def _attempt(figures: dict[str, Any], action: Callable[[], dict[str, Any]]) -> bool:
    """Put what the action answers, or why it failed, into a peer's figures."""
    try:
        figures.update(action())
    except WorkerError as error:
        figures["failed"] = str(error)
    return "failed" not in figures


def interleave(
    workers: Sequence[Worker],
    figures: dict[str, Any],
    rounds: int,
    seconds: float,
    burst: int,
) -> dict[str, list[dict[str, Any]]]:
    """Ask for rounds in turn; as many again while some peer's rounds are far apart."""
    samples: dict[str, list[dict[str, Any]]] = {w.peer.name: [] for w in workers}

    def one_round(worker: Worker) -> dict[str, Any]:
        time.sleep(0.01)  # the previous peer's threads go to sleep
        samples[worker.peer.name].append(worker.ask("round", seconds=seconds, burst=burst))
        return {}

    for number in range(2 * rounds):
        if number >= rounds and not _noisy(samples):
            break
        able = [w for w in workers if "failed" not in figures[w.peer.name]]
        shift = number % len(able) if able else 0  # nobody always follows the same neighbor
        for worker in able[shift:] + able[:shift]:
            _attempt(figures[worker.peer.name], partial(one_round, worker))
    return samples


def _noisy(samples: dict[str, list[dict[str, Any]]]) -> bool:
    spreads = [summary([s["median"] for s in taken])["spread"] for taken in samples.values()]
    return any(spread > NOISY for spread in spreads)


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles."""
    if not samples:
        return {"spread": 0.0, "samples": []}
    low, middle, high = np.percentile(samples, [25, 50, 75])
    return {
        "median": float(middle),
        "low": float(low),
        "high": float(high),
        "spread": float((high - low) / middle) if middle else 0.0,
        "samples": [float(s) for s in samples],
    }


def compare(case: Case, figures: dict[str, Any], folder: Path) -> None:
    """Set each peer's ``error``, its largest difference to the baseline's results, relatively.

    A peer beyond the case's tolerance has failed.
    """
    reference = folder / f"{case.baseline}.npz"
    if not reference.exists():
        return
    with np.load(reference) as wanted:
        for name, entry in figures.items():
            path = folder / f"{name}.npz"
            if name == case.baseline or not path.exists():
                continue
            with np.load(path) as found:
                errors = {k: difference(found[k], wanted[k]) for k in wanted.files}
                worst = max(errors, key=lambda k: np.nan_to_num(errors[k], nan=np.inf))
                entry["error"] = errors[worst]
                if not entry["error"] <= case.tolerance:
                    entry["failed"] = (
                        f"wrong result: {where(worst, found[worst], wanted[worst])}, off by "
                        f"{entry['error']:.2g} of the largest; {case.tolerance:.0e} is allowed"
                    )


def where(name: str, found: np.ndarray, wanted: np.ndarray) -> str:
    """The place of the largest difference, and both values there."""
    if found.shape != wanted.shape:
        return f"{name} has shape {found.shape} where the baseline's has {wanted.shape}"
    apart = np.nan_to_num(np.abs(found - wanted), nan=np.inf)
    place = tuple(int(i) for i in np.unravel_index(apart.argmax(), apart.shape))
    count = int((apart > apart.max() / 2).sum())
    return (
        f"{name}{list(place)} is {found[place]:.9g} where the baseline's is {wanted[place]:.9g}"
        + (f" (and {count - 1} others about as far)" if count > 1 else "")
    )


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest wanted value; infinite for another shape."""
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    scale = float(np.abs(wanted).max()) or 1.0
    return float(np.abs(found - wanted).max()) / scale


def peak_memory(case: Case, peer: Peer, device: str, rounds: int) -> dict[str, Any]:
    """Peak memory of one step, each time in a fresh process."""
    figures: dict[str, Any] = {}
    samples: list[float] = []
    for _ in range(rounds):
        worker = Worker(peer, case, device)
        try:
            samples.append(worker.ask("memory", START_SECONDS)["arrays"])
        except WorkerError as error:
            figures["failed"] = str(error)
            return figures
        finally:
            worker.close()
    return summary(samples)


def fresh_times(case: Case, peers: Sequence[Peer], rounds: int) -> dict[str, Any]:
    """Seconds of the case's program in a fresh process beyond those of a bare one."""
    once = modules(peers)
    samples: dict[str, list[float]] = {module: [] for module in once}
    figures: dict[str, Any] = {p.name: {} for p in once.values()}
    for number in range(rounds + 1):
        bare = _fresh_process("pass")
        for module, peer in once.items():
            try:
                taken = _fresh_process(case.program.format(module=module)) - bare
            except subprocess.CalledProcessError as error:
                figures[peer.name]["failed"] = error.stderr.strip().splitlines()[-1]
                continue
            if number:  # the first writes bytecode and fills the file cache
                samples[module].append(taken)
    for module, peer in once.items():
        if samples[module]:
            figures[peer.name].update(summary(samples[module]))
    return figures


def modules(peers: Sequence[Peer]) -> dict[str, Peer]:
    """The peers' modules, each with the first peer of that module which compiles nothing."""
    once: dict[str, Peer] = {}
    for peer in peers:
        if not peer.compiled:
            once.setdefault(peer.module, peer)
    return once


def sizes(peers: Sequence[Peer]) -> dict[str, Any]:
    """Megabytes on the disk of each peer's module with what it requires."""
    figures: dict[str, Any] = {}
    for module, peer in modules(peers).items():
        try:
            figures[peer.name] = summary([installed_bytes(module) / 1e6])
        except PackageNotFoundError as error:
            figures[peer.name] = {"failed": str(error)}
    return figures


def _fresh_process(code: str) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-c", code]
    subprocess.run(command, env=environment(), check=True, capture_output=True, text=True)
    return time.perf_counter() - start
