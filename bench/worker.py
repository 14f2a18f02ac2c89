"""The process that holds one peer and one case, and does rounds when asked.

It reads orders from stdin and answers on stdout, one JSON object a line. `bench.rounds` is the
other end.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, TextIO

import numpy as np

from bench.cases import CASES, Case, Step
from bench.graphs import in_graph, replayed
from bench.peers import PEERS, Peer, named


class Subject:
    """One peer doing one case on one device; its methods are the orders of the protocol."""

    def __init__(self, peer: Peer, case: Case, device: str) -> None:
        self.peer = peer
        self.case = case
        self.device = device
        self.torch = importlib.import_module(peer.module)
        self._step: Step | None = None

    def build(self, small: bool = False) -> Step:
        """Make the step, or its small form."""
        make = self.case.small if small else self.case.build
        assert make is not None, self.case.name
        compiler = self.peer.compiler
        if self.peer.replays:
            return replayed(self.torch, make(self.torch, self.device, in_graph))
        compiled: Callable[..., Any] = getattr(self.torch, compiler) if compiler else _as_it_is
        return make(self.torch, self.device, compiled)

    @property
    def step(self) -> Step:
        """The step, made when first asked for."""
        if self._step is None:
            self._step = self.build()
        return self._step

    def force(self, results: tuple[Any, ...]) -> None:
        """Have every result computed: read on the CPU, handed out as an array on a GPU."""
        for result in results:
            if hasattr(result, "block_until_ready"):  # JAX's: its dispatch is asynchronous
                result.block_until_ready()
            if not hasattr(result, "detach"):  # an array: nothing of it is pending
                continue
            value = result.detach() if result.requires_grad else result
            if self.device == "cpu":
                value.numpy()
            elif self.peer.module == "lucid_gpu":
                value.cupy()

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def version(self) -> dict[str, Any]:
        """Say who this is."""
        version = getattr(self.torch, "__version__", None)
        return {"version": str(version or metadata.version(self.peer.module))}

    def check(self, path: str) -> dict[str, Any]:
        """Do the first steps and leave their results in a file."""
        for _ in range(self.case.check_steps):
            results = self.step()
        arrays = [np.asarray(on_host(r), np.float64) for r in results]
        np.savez(path, *arrays)
        return {"results": len(arrays)}

    def warm(self, seconds: float) -> dict[str, Any]:
        """Do steps for a while, unmeasured."""
        return {"steps": len(self._times(seconds, least=2, burst=1))}

    def round(self, seconds: float, burst: int = 1) -> dict[str, Any]:
        """Measure steps for a while; ``burst`` steps go between two looks at the clock."""
        self._times(seconds / 20, least=2, burst=1)  # caches and threads were idle
        times = self._times(seconds, least=3, burst=burst)
        return {
            "median": float(np.median(times)),
            "mean": float(np.mean(times)),
            "steps": len(times) * burst,
        }

    def _times(self, seconds: float, least: int, burst: int) -> list[float]:
        step, force, clock = self.step, self.force, time.perf_counter
        times: list[float] = []
        self.synchronize()
        end = clock() + seconds
        while len(times) < least or clock() < end:
            start = clock()
            for _ in range(burst):
                force(step())
            self.synchronize()
            times.append((clock() - start) / burst)
        return times

    def memory(self) -> dict[str, Any]:
        """Peak resident memory of one step beyond what lay there before it, inputs included."""
        self.force(self.build(small=True)())
        step = self.build()
        if self.peer.compiled:  # the compiler's own memory is not the step's
            self.force(step())
        gc.collect()
        before = reset_peak()
        results = step()
        self.force(results)
        peak = resident()["VmHWM"]
        return {"arrays": (peak - before) / self.case.array_bytes, "before": before, "peak": peak}


def on_host(result: Any) -> Any:
    """A tensor's or an array's values where NumPy finds them."""
    if hasattr(result, "detach"):
        return result.detach().cpu().numpy()
    return result.get() if hasattr(result, "get") else result


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def resident() -> dict[str, int]:
    """Resident memory of this process in bytes: ``VmRSS`` now, ``VmHWM`` at its highest."""
    found = {}
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name in ("VmRSS", "VmHWM"):
                found[name] = int(value.split()[0]) * 1024
    return found


def reset_peak() -> int:
    """Bring the kernel's high-water mark down to what is resident now, and return that.

    Raises
    ------
    OSError
        Where the system has no such mark (it is Linux's).
    """
    with open("/proc/self/clear_refs", "w", encoding="ascii") as marks:
        marks.write("5")
    return resident()["VmRSS"]


def claim_stdout() -> TextIO:
    """Keep stdout for answers; whatever else a peer prints goes to stderr."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main(peer: str, case: str, device: str = "cpu") -> None:
    """Answer orders until stdin ends."""
    answers = claim_stdout()
    subject: Subject | None = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if subject is None:
                (who,), (what,) = named(PEERS, [peer], "peer"), named(CASES, [case], "case")
                subject = Subject(who, what, device)
            answer = getattr(subject, order.pop("do"))(**order)
        except Exception as error:  # the parent says it; this process goes on
            answer = {"error": f"{type(error).__name__}: {str(error).strip()[:400]}"}
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
