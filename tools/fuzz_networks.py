"""Random small networks, run in several ways: ``make fuzz ARGS="--minutes 60"``.

Their losses, all gradients, buffers and trained parameters are held against PyTorch, and against
the same network run another way: op by op, without what is in C, on one thread, and now and then
as CUDA C on the host. `EXACT` says where another way gives the same bits; else a number may be
off by a rounding, and by what the network makes of roundings, which runs of the judge in double
precision tell. A network that fails is cut down to a few lines, which are printed as a file that
runs on its own, and written to ``runs/fuzz/``. The exit status says whether there was one.
"""

from __future__ import annotations

import argparse
import importlib
import math
import multiprocessing
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))

from tools import endurance  # noqa: E402
from tools.network_programs import network  # noqa: E402
from tools.network_runs import TRAINING, Network, Results, run, script  # noqa: E402

MODES: dict[str, dict[str, str]] = {  # and the environment of each
    "torch": {},
    "fused": {"LUCID_NUM_THREADS": "2"},
    "eager": {"LUCID_NUM_THREADS": "2", "LUCID_EAGER": "1"},
    "native off": {
        "LUCID_NUM_THREADS": "2",
        "LUCID_NATIVE_LOOPS": "0",
        "LUCID_NATIVE_CORE": "0",
    },
    "one thread": {"LUCID_NUM_THREADS": "1"},
    "host-cuda": {"LUCID_NUM_THREADS": "2", "LUCID_EXECUTOR": "host-cuda"},
}
ROWS = "norm|softm|nll|kl_div|cross_entropy|logsumexp"  # kernels of rows, written by hand
EXACT = {  # the same bits as fused, where no line of the network names one of these:
    "native off": "LSTM|GRU|RNN",
    "one thread": rf"{ROWS}|conv|cat|L\(",
    "again": "$^",  # once more in the same process, its plans known by now; after one step
}
WHOLE = 64 * 1024  # elements up to which sums are not cut into blocks, whose size threads decide
CUDA_EVERY = 40  # networks of which one is compiled as CUDA C: it takes seconds
CUDA_LINES = 9
PATIENCE = 120.0  # seconds for one network
LOOSE, FLOOR, TINY = 1e-4, 3e-6, 1e-7  # of the largest entry, of that of all results, absolute
SPREAD = 20.0  # times what roundings make of a network in the judge's own hands
NOISE = {"float32": 2e-7, "float64": 4e-16}


class Refusal(NamedTuple):
    """An error in place of results."""

    kind: str
    text: str


Answer = Results | Refusal
Ask = Callable[..., Answer]


class Fault(NamedTuple):
    """What differs in which mode."""

    mode: str
    judge: str
    what: str
    how: str

    def same_kind(self, other: Fault) -> bool:
        """Whether both may have one cause."""
        return self[:2] == other[:2] and (self.what == "refuses") == (other.what == "refuses")


def answer(module: Any, asked: Network, noise: float = 0.0) -> Answer:
    """A network's results, or the error that it raises."""
    try:
        return run(module, asked, noise)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{error} ({Path(where.filename).name}:{where.lineno})"
        return Refusal(type(error).__name__, text)


# --- what agrees ---------------------------------------------------------------------------------


def zero(array: Any) -> bool:
    """No gradient, or one that is zero everywhere."""
    return array is None or not np.any(array)


def unlike_bits(mine: Results, theirs: Results) -> tuple[str, str] | None:
    """The first result with other bits, and how far it is off."""
    for (name, a), (_, b) in zip(mine, theirs):
        if (a is None) != (b is None) or (a is not None and _bits(a) != _bits(b)):
            return name, f"other bits, {apart(a, b):.1e} of the largest entry apart"
    return None


def _bits(array: Any) -> bytes:
    """An array's bytes, each NaN the same: its sign is a matter of the instruction chosen."""
    nan = np.isnan(array)
    return (
        np.where(nan, array.dtype.type(np.nan), array).tobytes() if nan.any() else array.tobytes()
    )


def apart(a: Any, b: Any) -> float:
    """The largest difference, as part of the largest entry."""
    if zero(a) and zero(b):
        return 0.0
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype("f8") - b).max() / (np.abs(b).max() or 1))


def largest(results: Results) -> float:
    """The largest entry of all gradients."""
    return max((float(np.abs(a).max(initial=0)) for _, a in results if a is not None), default=0.0)


def difference(a: Any, b: Any) -> Any:
    """How far entries are apart at most; None stands for zeros."""
    if a is None or b is None:
        return largest([("", a if b is None else b)])
    return float(np.abs(a.astype("f8") - b).max(initial=0)) if a.shape == b.shape else np.inf


def off(mine: Results, judge: Results, spread: Sequence[float] = ()) -> tuple[str, str] | None:
    """The first result that is farther from the judge's than roundings explain."""
    if [name for name, _ in mine] != [name for name, _ in judge]:
        return "names", f"{[n for n, _ in mine]} beside {[n for n, _ in judge]}"
    fine = any(a is not None and a.dtype == np.float64 for _, a in mine)
    loose, floor, tiny = (1e-7, 1e-9, 1e-14) if fine else (LOOSE, FLOOR, TINY)
    least = floor * largest(judge) + tiny
    for i, ((name, a), (_, b)) in enumerate(zip(mine, judge)):
        more = spread[i] if spread else 0.0
        if not difference(a, b) <= loose * largest([("", b)]) + least + SPREAD * more:
            return name, f"{apart(a, b):.1e} of the largest entry off"
    return None


def finite(results: Results) -> bool:
    """Whether all numbers are."""
    return all(a is None or np.isfinite(a).all() for _, a in results)


def settled(asked: Network, ask: Ask, judge: str, mine: Results) -> tuple[str, str] | None:
    """`off` beside what the judge itself makes of roundings.

    The masks of dropout depend on the type; so those networks are judged in their own.
    """
    wide = asked if asked.seeded else asked._replace(dtype="float64")
    noise = NOISE[asked.dtype]
    ways = ((wide, 0.0), (wide, noise), (wide, -noise), (asked, 0.0))
    runs = [r for r in (ask(judge, *way) for way in ways) if not isinstance(r, Refusal)]
    if len(runs) < len(ways):
        return "judge", "it refuses the network in double precision"
    truth, *others = runs
    pairs = [[difference(a, b) for (_, a), (_, b) in zip(r, truth)] for r in others]
    totals = [sum(column) for column in zip(*pairs)]
    # Where roundings turn the judge's own numbers into NaN, any finite number may stand.
    return off(mine, truth, [math.inf if math.isnan(total) else total for total in totals])


def faults(asked: Network, ask: Ask, modes: Sequence[str]) -> list[Fault] | Refusal:
    """What differs, mode by mode; the judge's refusal where it refuses the network.

    Where PyTorch does, those of our modes that give an answer are compared.

    Parameters
    ----------
    ask : callable
        ``ask(mode, network, noise=0.0)`` gives results or a `Refusal`.
    """
    judge = "eager" if asked.seeded or "torch" not in modes else "torch"
    found = {mode: ask(mode, asked) for mode in modes}
    right = found[judge]
    refused = isinstance(right, Refusal)
    if refused and judge == "torch":  # we need not refuse all writes in place that it does
        judge, right = "eager", found.get("eager", right)
    if isinstance(right, Refusal):
        return right
    result = []
    for mode, mine in found.items():
        if mode in (judge, "torch") or (refused and isinstance(mine, Refusal)):
            continue
        against = "fused" if exact(mode, asked) else judge
        wrong = compared(asked, ask, mine, found[against], against)
        if wrong:
            result.append(Fault(mode, against, *wrong))
    return result


def exact(mode: str, asked: Network) -> bool:
    """Whether the mode gives the bits of fused."""
    if mode == "again" and asked.train not in ("once", "twice"):
        return False  # later turns of a loop store other values
    if mode == "one thread" and _largest(asked.sizes) > WHOLE:
        return False
    return mode in EXACT and not re.search(EXACT[mode], "\n".join(asked.lines))


def _largest(sizes: dict[str, int]) -> int:
    """About how many elements a value has at most: a linear layer makes widths of channels."""
    wide = max(sizes["C"], sizes["S"])
    return sizes["N"] * sizes["C"] * wide * wide


def compared(
    asked: Network, ask: Ask, mine: Answer, right: Answer, against: str
) -> tuple[str, str] | None:
    """What is wrong with an answer."""
    if isinstance(mine, Refusal):
        return None if mine.kind == "NotImplementedError" else ("refuses", ": ".join(mine))
    if isinstance(right, Refusal):  # which is told as that mode's fault
        return None
    if against == "fused":
        return unlike_bits(mine, right)
    return off(mine, right) and finite(right) and settled(asked, ask, against, mine) or None


# --- shorter -------------------------------------------------------------------------------------

NAME = re.compile(r"\b(?:[vl]\d+|x)\b")


def simpler(asked: Network) -> Iterator[Network]:
    """Networks with plainer training, smaller sizes, or a line less."""
    for train in ("once", "twice")[: TRAINING.index(asked.train)]:
        yield asked._replace(train=train)
    if asked.made != "clone":
        yield asked._replace(made="clone")
    for size, number in asked.sizes.items():
        for less in sorted({1, 2, 3, 4, 8, number // 2, number - 1}):
            if 0 < less < number:
                yield asked._replace(sizes={**asked.sizes, size: less})
    for i in reversed(range(len(asked.lines) - 1)):
        yield from without(asked, i)
    for i, line in enumerate(asked.lines):
        for text in plainer(line):
            yield asked._replace(lines=(*asked.lines[:i], text, *asked.lines[i + 1 :]))


def without(asked: Network, i: int) -> Iterator[Network]:
    """The network without a line: what reads its value reads another one."""
    line, rest = asked.lines[i], asked.lines[i + 1 :]
    made, is_value, text = line.partition(" = ")
    if not is_value or not NAME.fullmatch(made):
        yield asked._replace(lines=asked.lines[:i] + rest)
        return
    before = [n for n in dict.fromkeys(NAME.findall(text)) if n != made]
    for other in before if any(made in NAME.findall(r) for r in rest) else ["x"]:
        swapped = [re.sub(rf"\b{made}\b", other, r) for r in rest]
        yield asked._replace(lines=(*asked.lines[:i], *swapped))


def plainer(line: str) -> Iterator[str]:
    """A line with less in it: no bias, no option, one operand of two."""
    for part in re.findall(r", (?:\w+=[\w.']+|P\('\w+', [^()]*\))", line):
        yield line.replace(part, "", 1)
    found = re.fullmatch(r"(\w+ = )(\w+) [-+*/] (.+)", line)
    if found:
        yield found[1] + found[2]
        yield found[1] + found[3]


def shortened(asked: Network, fails: Callable[[Network], bool], seconds: float = 120.0) -> Network:
    """The network cut down as long as it fails."""
    end = time.monotonic() + seconds
    tried = {repr(asked)}
    going = True
    while going:
        going = False
        for other in simpler(asked):
            if time.monotonic() > end:
                return asked
            if repr(other) not in tried:
                tried.add(repr(other))
                if fails(other):
                    asked, going = other, True
                    break
    return asked


# --- a process a mode ----------------------------------------------------------------------------


def serve(mode: str, pipe: Any) -> None:
    """What a process does: run the networks that come, until nobody asks."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    module = importlib.import_module("torch" if mode == "torch" else "lucid_gpu")
    if mode == "torch":
        module.set_num_threads(1)
    with suppress(EOFError):  # the process that asks has ended
        while True:
            pipe.send(answer(module, *pipe.recv()))


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables for the processes started here; others of ours are unset."""
    before = dict(os.environ)
    for name in [n for n in os.environ if n.startswith("LUCID_") and n != "LUCID_CACHE_DIR"]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Worker:
    """A process that runs networks in one mode; a new one after a crash."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.start()

    def start(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(self.mode, theirs), daemon=True)
        with environment(MODES[self.mode]):
            self.process.start()
        theirs.close()

    def send(self, *asked: Any) -> None:
        """Have it begin with a network."""
        self.pipe.send(asked)

    def receive(self) -> Answer:
        """Its answer; a crash and too long a wait are refusals."""
        try:
            if self.pipe.poll(PATIENCE):
                found: Answer = self.pipe.recv()
                return found
        except (EOFError, ConnectionError):
            self.process.join()
            refusal = Refusal("Crash", f"exit status {self.process.exitcode}")
        else:
            self.process.kill()
            self.process.join()
            refusal = Refusal("Hang", f"no answer after {PATIENCE:.0f} s")
        self.start()
        return refusal


class Workers:
    """All processes; those of a network run side by side."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.ready: dict[tuple[str, str], Answer] = {}

    def worker(self, mode: str) -> Worker:
        """The process of a mode, started when first needed."""
        if mode not in self.workers:
            self.workers[mode] = Worker(mode)
        return self.workers[mode]

    def begin(self, asked: Network, modes: Sequence[str]) -> None:
        """Run a network in all modes at once; `ask` gives the answers."""
        self.ready.clear()
        modes = [mode for mode in modes if mode != "again"]
        for mode in modes:
            self.worker(mode).send(asked)
        for mode in modes:
            self.ready[mode, repr(asked)] = self.worker(mode).receive()

    def ask(self, mode: str, asked: Network, noise: float = 0.0) -> Answer:
        """A mode's answer."""
        if not noise and (mode, repr(asked)) in self.ready:
            return self.ready[mode, repr(asked)]
        worker = self.worker("fused" if mode == "again" else mode)
        worker.send(asked, noise)
        return worker.receive()

    def faults(self, asked: Network, modes: Sequence[str]) -> list[Fault] | Refusal:
        """What differs between the modes."""
        self.begin(asked, modes)
        return faults(asked, self.ask, modes)


def shortest(workers: Workers, asked: Network, fault: Fault) -> tuple[Network, Fault]:
    """The network cut down, and its fault; in the modes that are needed to see it."""
    judge = "eager" if asked.seeded else "torch"
    modes = list(dict.fromkeys([judge, fault.judge, "fused", fault.mode]))
    last = [fault]

    def fails(other: Network) -> bool:
        found = workers.faults(other, modes)
        same = [] if isinstance(found, Refusal) else [f for f in found if f.same_kind(fault)]
        last[:1] = same or last[:1]
        return bool(same)

    if not fails(asked):
        return asked, fault._replace(how=f"{fault.how}; not when it is run once more")
    return shortened(asked, fails), last[0]


def told(asked: Network, fault: Fault) -> str:
    """A failing network as a file that runs on its own."""
    why = f"{fault.mode} beside {fault.judge}: {fault.what}: {fault.how} (seed {asked.seed})"
    variables = " ".join(f"{k}={v}" for k, v in MODES.get(fault.mode, MODES["fused"]).items())
    return script(asked, why, variables)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search until the time is over."""
    parser = argparse.ArgumentParser(description="Networks, every way.", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=60, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--count", type=int, default=0, help="networks at most; 0: no limit")
    parser.add_argument("--no-cuda", action="store_true", help="compile nothing for the host")
    parser.add_argument("--keep", action="store_true", help="in bench/results/endurance.md")
    args = parser.parse_args(arguments)
    record = endurance.Run("networks", args.seed)
    end, number, refused, found = time.monotonic() + 60 * args.minutes, 0, 0, list[str]()
    workers = Workers()
    while time.monotonic() < end and (not args.count or number < args.count):
        asked = network(args.seed + number)
        number += 1
        modes = [mode for mode in (*MODES, "again") if mode != "host-cuda"]
        if not args.no_cuda and number % CUDA_EVERY == 0:
            asked = network(args.seed + number, 4000)
            modes += ["host-cuda"] if len(asked.lines) <= CUDA_LINES else []
        wrong = workers.faults(asked, modes)
        if isinstance(wrong, Refusal):
            refused += 1
        elif wrong:
            found.append(reported(workers, asked, wrong))
        line = f"\r{number} networks, {refused} refused by torch and op by op, {len(found)} faults "
        print(line, end="", flush=True)
    names = "; ".join(found) or "none"
    print(f"\nseed {args.seed}: {number} networks; faults: {names}")
    if args.keep:
        record.keep(
            f"{number:,} networks, {refused:,} of them refused by PyTorch, too", f"faults: {names}",
            networks=number, refused=refused, faults=found,
        )  # fmt: skip
    return 1 if found else 0


def reported(workers: Workers, asked: Network, wrong: list[Fault]) -> str:
    """Print and write the shortest network of the first fault; returns a line about it."""
    line = "; ".join(f"{f.mode} beside {f.judge}: {f.what}: {f.how}" for f in wrong)
    print(f"\nseed {asked.seed}: {line}", flush=True)
    text = told(*shortest(workers, asked, wrong[0]))
    place = TREE / "runs" / "fuzz" / f"network-{asked.seed}.py"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    print(text[text.index("LINES =") :] + f"\n{place}", flush=True)
    return f"seed {asked.seed}: {line}"


if __name__ == "__main__":
    sys.exit(main())
