"""The process that measures one peer: each case in turn, a line of JSON a case on stdout.

``python -m bench.gpu_worker lucid_gpu --device cpu --rounds 1 --toy`` tries it without a GPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.gpu_cases import CASES, Case, Kit, Step, force, sized
from bench.peers import named

ROTATED_BYTES = 400 << 20  # inputs of all sets together: several times any cache
MOST_SETS = 64
ROUND_SECONDS = 0.02
SAMPLES = 4096


@dataclass(frozen=True)
class Peer:
    """Who is measured.

    Attributes
    ----------
    module : str
        What is imported.
    table : str, optional
        A module of `bench` with a `STEPS` table of its own ways to do the cases.
    """

    name: str
    title: str
    module: str
    compiled: bool = False
    table: str | None = None


PEERS: tuple[Peer, ...] = (
    Peer("lucid_gpu", "lucid_gpu", "lucid_gpu"),
    Peer("torch-eager", "torch eager", "torch"),
    Peer("torch-compile", "torch.compile", "torch", compiled=True),
    Peer("triton", "Triton kernels", "triton", table="bench.gpu_triton"),
    Peer("jax", "JAX (jit)", "jax", table="bench.gpu_jax"),
)


def build(peer: Peer, case: Case, kit: Kit) -> Step | None:
    """The step of a case, or None where the peer has none."""
    if peer.table is None:
        return case.build(kit)
    steps = importlib.import_module(peer.table).STEPS
    return steps[case.name](kit) if case.name in steps else None


def module_of(peer: Peer) -> Any:
    """The module with PyTorch's names, or JAX's."""
    return importlib.import_module("torch" if peer.module == "triton" else peer.module)


def sets_of(case: Case, kit: Kit) -> int:
    """So many sets of inputs that they are larger than the cache together."""
    if case.least is None:
        return 4
    return max(2, min(MOST_SETS, -(-ROTATED_BYTES // case.least(kit))))


def measure(peer: Peer, case: Case, dtype: str, device: str, rounds: int, toy: bool) -> Any:
    """Figures of one case and type: seconds of a step, their spread, a sample of results."""
    torch = module_of(peer)
    kit = Kit(torch, device, dtype, sized(case, toy), 1)
    kit.sets = 2 if toy else sets_of(case, kit)
    if peer.compiled:
        torch._dynamo.reset()
        kit.compiled = torch.compile
    step = build(peer, case, kit)
    if step is None:
        return None
    results = step(0)
    figures: dict[str, Any] = {"sample": [] if case.random else sample(results)}
    del results
    clock = Clock(torch, device, kit)
    burst = burst_of(step, clock, toy)
    seconds = [clock.time(step, burst, number * burst) for number in range(rounds)]
    figures["seconds"] = statistics.median(seconds)
    figures["low"], figures["high"] = np.percentile(seconds, [25, 75]).tolist()
    figures["burst"], figures["sets"] = burst, kit.sets
    return figures


def events_of(torch: Any) -> tuple[Callable[[], Any], Callable[[Any, Any], float]] | None:
    """How a peer makes CUDA events, and the milliseconds between two; None for JAX."""
    if torch.__name__ == "torch":
        return partial(torch.cuda.Event, enable_timing=True), lambda a, b: a.elapsed_time(b)
    if torch.__name__ == "lucid_gpu":  # CuPy's: a cuda.Event would look for pending values too
        import cupy

        return cupy.cuda.Event, cupy.cuda.get_elapsed_time
    return None


class Clock:
    """Times bursts of steps: by CUDA events where the peer has them, else by the host's clock."""

    def __init__(self, torch: Any, device: str, kit: Kit) -> None:
        self.kit = kit
        self.events = events_of(torch) if device == "cuda" else None
        self.wait: Callable[[Any], Any] = getattr(torch, "block_until_ready", lambda results: None)

    def time(self, step: Step, burst: int, first: int) -> float:
        """Seconds a step of a burst of steps."""
        if self.events is None:
            start = time.perf_counter()
            self._run(step, burst, first)
            return (time.perf_counter() - start) / burst
        make, elapsed = self.events
        begin, end = make(), make()
        begin.record()
        self._run(step, burst, first)
        end.record()
        end.synchronize()
        return elapsed(begin, end) / 1e3 / burst

    def _run(self, step: Step, burst: int, first: int) -> None:
        results: Any = None
        for number in range(first, first + burst):
            results = step(number % self.kit.sets)
            force(self.kit, results)
        self.wait(results)


def burst_of(step: Step, clock: Clock, toy: bool) -> int:
    """Warm up on every set, then say how many steps make a round."""
    clock.time(step, clock.kit.sets, 0)
    once = min(clock.time(step, 2, 0), clock.time(step, 2, 2))
    if toy:
        return 2
    return max(3, min(500, math.ceil(ROUND_SECONDS / max(once, 1e-7))))


def sample(results: Sequence[Any]) -> list[list[float]]:
    """Some elements of each result, by which peers are compared."""
    return [_some(result) for result in results]


def _some(result: Any) -> list[float]:
    if hasattr(result, "detach"):
        result = result.detach().float().cpu().numpy()
    flat = np.asarray(result, np.float32).reshape(-1)
    found: list[float] = flat[:: max(1, flat.size // SAMPLES)][:SAMPLES].tolist()
    return found


def difference(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> float:
    """The largest ||found - wanted|| / ||wanted|| of a result; infinite for NaN and other sizes."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=False):
        if len(a) != len(b):
            return math.inf
        one, other = np.asarray(a, np.float64), np.asarray(b, np.float64)
        apart = float(np.linalg.norm(one - other) / (np.linalg.norm(other) or 1.0))
        worst = math.inf if math.isnan(apart) else max(worst, apart)
    return worst


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="python -m bench.gpu_worker", description=__doc__)
    flags.add_argument("peer", choices=[p.name for p in PEERS])
    flags.add_argument("--case", action="append", help="one case; may be repeated")
    flags.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    flags.add_argument("--rounds", type=int, default=15)
    flags.add_argument("--toy", action="store_true", help="tiny sizes")
    flags.add_argument("--seconds", type=float, default=math.inf, help="begin no case after these")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 1 when a case failed."""
    options = parser().parse_args(argv)
    end = time.monotonic() + options.seconds
    (peer,) = named(PEERS, [options.peer], "peer")
    failed = 0
    for case in named(CASES, options.case or [c.name for c in CASES], "case"):
        for dtype in case.dtypes:
            if time.monotonic() > end:
                return int(failed > 0)
            entry = {"case": case.name, "dtype": dtype}
            run = partial(measure, peer, case, dtype, options.device, options.rounds, options.toy)
            try:
                figures = run()
            except Exception as error:  # said, and the next case runs
                figures = {"failed": f"{type(error).__name__}: {str(error).strip()[:300]}"}
                failed += 1
            if figures is not None:
                print(json.dumps({**entry, **figures}), flush=True)
            gc.collect()
            if options.device == "cuda" and hasattr(module_of(peer), "cuda"):
                module_of(peer).cuda.empty_cache()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
