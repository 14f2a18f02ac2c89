"""The process that measures one peer: each case in turn, a line in the journal a case.

``python -m bench.gpu_worker lucid_gpu --device cpu --rounds 1 --toy`` tries it without a GPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib
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
from bench.gpu_pieces import Skip, do
from bench.peers import named

ROTATED_BYTES = 400 << 20  # inputs of all sets together: several times any cache
MOST_SETS = 64
ROUND_SECONDS = 0.02
SAMPLES = 512
# To time the device alone it copies this much while steps are queued, of which the driver takes
# about a thousand launches before it makes the host wait.
FILLER_BYTES = 128 << 20
QUEUED_STEPS, QUEUED_ROUNDS, MOST_FILLERS = 20, 5, 400


@dataclass(frozen=True)
class Peer:
    """Who is measured.

    Attributes
    ----------
    module : str
        What is imported.
    table : str, optional
        A module of `bench` with a `STEPS` table of its own ways to do the cases.
    cases : sequence of str
        What it measures where nobody names cases; none means all.
    """

    name: str
    title: str
    module: str
    compiled: bool = False
    table: str | None = None
    cases: Sequence[str] = ()


# Each takes seconds to compile, and a window is short: what its fusion is known for, whole steps.
COMPILED_CASES = (
    "chain-forward",
    "chain-backward",
    "bias-gelu-residual",
    "layer-norm-forward",
    "layer-norm-backward",
    "softmax-backward",
    "cross-entropy-32k",
    "adam",
    "mlp",
    "gpt",
    "launch",
)

PEERS: tuple[Peer, ...] = (
    Peer("lucid_gpu", "lucid_gpu", "lucid_gpu"),
    Peer("torch-eager", "torch eager", "torch"),
    Peer("torch-compile", "torch.compile", "torch", compiled=True, cases=COMPILED_CASES),
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
    """Figures of one case and type, in seconds of a step, and a sample of results.

    ``first`` is the first step till its results are there, with all that is compiled; ``seconds``
    a later one among others, between two CUDA events where the peer has them; ``host`` the time
    that this thread computes till the calls of a step return; ``device`` what a step takes there
    when the GPU has been kept busy till all its launches wait in the queue.
    """
    torch = module_of(peer)
    kit = Kit(torch, device, dtype, sized(case, toy), 1)
    kit.sets = 2 if toy else sets_of(case, kit)
    if peer.compiled:
        torch._dynamo.reset()
        kit.compiled = torch.compile
    step = build(peer, case, kit)
    if step is None:
        return None
    clock = Clock(torch, device, kit)
    clock.finish(())
    start = time.perf_counter()
    results = step(0)
    force(kit, results)
    clock.finish(results)
    figures: dict[str, Any] = {"first": time.perf_counter() - start}
    figures["sample"] = [] if case.random else sample(results)
    del results
    burst = burst_of(step, clock, toy)
    bursts = [clock.time(step, burst, number * burst) for number in range(rounds)]
    seconds = [whole for whole, _ in bursts]
    figures["seconds"] = statistics.median(seconds)
    figures["low"], figures["high"] = np.percentile(seconds, [25, 75]).tolist()
    figures["host"] = statistics.median(host for _, host in bursts)
    figures["device"] = clock.device_seconds(step, min(burst, QUEUED_STEPS), figures["host"])
    figures["burst"], figures["sets"] = burst, kit.sets
    return figures


@dataclass(frozen=True)
class Gpu:
    """How a peer makes CUDA events and copies within the device."""

    event: Callable[[], Any]
    milliseconds: Callable[[Any, Any], float]
    reached: Callable[[Any], bool]  # whether the device has come to an event
    filler: Callable[[], Callable[[], Any]]  # makes a copy that keeps the device busy


def gpu_of(torch: Any) -> Gpu | None:
    """The peer's; None for JAX, which has no events."""
    if torch.__name__ == "torch":

        def torchs() -> Callable[[], Any]:
            a, b = (torch.zeros(FILLER_BYTES, dtype=torch.int8, device="cuda") for _ in "ab")
            return lambda: a.copy_(b)

        event = partial(torch.cuda.Event, enable_timing=True)
        return Gpu(event, lambda a, b: a.elapsed_time(b), lambda e: e.query(), torchs)
    if torch.__name__ == "lucid_gpu":  # CuPy's: a cuda.Event would look for pending values too
        import cupy

        def cupys() -> Callable[[], Any]:
            a, b = (cupy.zeros(FILLER_BYTES, cupy.int8) for _ in "ab")
            return lambda: cupy.copyto(a, b)

        return Gpu(cupy.cuda.Event, cupy.cuda.get_elapsed_time, lambda e: e.done, cupys)
    return None


class Clock:
    """Times bursts of steps: by CUDA events where the peer has them, else by the host's clock."""

    def __init__(self, torch: Any, device: str, kit: Kit) -> None:
        self.kit, self.torch = kit, torch
        self.gpu = gpu_of(torch) if device == "cuda" else None

    def finish(self, results: Any) -> None:
        """Wait for the device, or for the results."""
        if self.gpu is not None:
            self.torch.cuda.synchronize()
        elif hasattr(self.torch, "block_until_ready"):
            self.torch.block_until_ready(results)

    def time(self, step: Step, burst: int, first: int) -> tuple[float, float]:
        """Seconds a step of a burst of steps, and those in which this thread computed."""
        if self.gpu is None:
            start = time.perf_counter()
            host, results = self._run(step, burst, first)
            self.finish(results)
            return (time.perf_counter() - start) / burst, host / burst
        begin, end = self.gpu.event(), self.gpu.event()
        begin.record()
        host, _ = self._run(step, burst, first)
        end.record()
        end.synchronize()
        return self.gpu.milliseconds(begin, end) / 1e3 / burst, host / burst

    def device_seconds(self, step: Step, burst: int, host: float) -> float | None:
        """Seconds a step takes on the device alone; None where they cannot be told apart."""
        if self.gpu is None:
            return None
        fill, found = self.gpu.filler(), []
        for number in range(QUEUED_ROUNDS):
            begin, middle, end = (self.gpu.event() for _ in range(3))
            begin.record()
            fill()
            middle.record()
            middle.synchronize()
            once = self.gpu.milliseconds(begin, middle) / 1e3
            for _ in range(min(MOST_FILLERS, math.ceil(2 * host * burst / once) + 2)):
                fill()
            begin.record()
            self._run(step, burst, number * burst)
            end.record()
            hidden = not self.gpu.reached(begin)  # all launches were made before it began
            end.synchronize()
            if hidden:
                found.append(self.gpu.milliseconds(begin, end) / 1e3 / burst)
        return statistics.median(found) if found else None

    def _run(self, step: Step, burst: int, first: int) -> tuple[float, Any]:
        results: Any = None
        start = time.thread_time()
        for number in range(first, first + burst):
            results = step(number % self.kit.sets)
            force(self.kit, results)
        return time.thread_time() - start, results


def burst_of(step: Step, clock: Clock, toy: bool) -> int:
    """Warm up on every set, then say how many steps make a round."""
    clock.time(step, clock.kit.sets, 0)
    once = min(clock.time(step, 2, 0), clock.time(step, 2, 2))[0]
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
    found = flat[:: max(1, flat.size // SAMPLES)][:SAMPLES].tolist()
    return [float(f"{number:.7g}") for number in found]


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
    flags.add_argument("--part", help="under which results are noted; by default the peer")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; `bench.gpu_pieces.SOME_FAILED` when a case failed."""
    options = parser().parse_args(argv)
    (peer,) = named(PEERS, [options.peer], "peer")
    names = options.case or peer.cases or [c.name for c in CASES]
    works = (
        (f"{case.name} {dtype}", partial(_measured, peer, case, dtype, options))
        for case in named(CASES, names, "case")
        for dtype in case.dtypes
    )
    return do(options.part or peer.name, works)


def _measured(peer: Peer, case: Case, dtype: str, options: argparse.Namespace) -> Any:
    try:
        figures = measure(peer, case, dtype, options.device, options.rounds, options.toy)
    finally:
        gc.collect()
        if options.device == "cuda" and hasattr(module_of(peer), "cuda"):
            module_of(peer).cuda.empty_cache()
    if figures is None:
        raise Skip(f"{peer.title} has no {case.name}")
    return figures


if __name__ == "__main__":
    sys.exit(main())
