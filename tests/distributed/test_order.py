"""Random sequences of calls under way, of which one rank makes others: all say which, and end."""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed.errors import DistBackendError
from tests.distributed.processes import MPIEXEC, mpi, run
from tests.slow import slow_but

SEEDS = 12


def reduced(n: int, kind: Any, op: Any) -> Any:
    return lambda group: dist.all_reduce(t.ones(n, dtype=kind), op, group, async_op=True)


def sent(n: int, root: int) -> Any:
    return lambda group: dist.broadcast(t.ones(n), group=group, async_op=True, group_src=root)


def gathered(n: int) -> Any:
    def call(group: Any) -> Any:
        whole = t.zeros(n * group.size())
        return dist.all_gather_into_tensor(whole, t.ones(n), group, async_op=True)

    return call


def calls_of(seed: int) -> list[tuple[str, Callable[[Any], Any]]]:
    """Calls, and what errors name them."""
    draw, calls = random.Random(seed), []
    for _ in range(draw.randint(2, 6)):
        n = draw.randint(1, 40)
        kind = draw.choice([t.float32, t.int64])
        calls.append(
            draw.choice(
                [
                    (f"all_reduce({kind.name} [{n}], SUM)", reduced(n, kind, dist.ReduceOp.SUM)),
                    (f"all_reduce({kind.name} [{n}], MAX)", reduced(n, kind, dist.ReduceOp.MAX)),
                    (f"broadcast(float32 [{n}], rank 0)", sent(n, 0)),
                    (f"all_gather_into_tensor(float32 [{n}])", gathered(n)),
                ]
            )
        )
    return calls


def changed(seed: int, calls: list[Any]) -> list[Any]:
    """The same in another order, without one, or with one more."""
    draw, other = random.Random(-seed), list(calls)
    at, how = draw.randrange(len(calls)), seed % 3
    if how == 0:
        draw.shuffle(other)
    elif how == 1:
        del other[at]
    else:
        other.insert(at, ("broadcast(float32 [77], rank 0)", sent(77, 0)))
    return other


def mismatched(seed: int) -> None:
    """All ranks begin their calls, and wait for them in any order."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(timeout=timedelta(seconds=20))
    right = calls_of(seed)
    wrong = changed(seed, right)
    ends = ("barrier()", lambda group: dist.barrier(group, async_op=True))  # after the shorter
    mine = [*(wrong if rank == size - 1 else right), ends]
    said = ""
    try:
        works = [call(group) for _, call in mine]
        random.Random(rank + 7 * seed).shuffle(works)
        for work in works:
            work.wait()
    except DistBackendError as error:
        said = str(error)
    pairs = zip([name for name, _ in (*right, ends)], [name for name, _ in (*wrong, ends)])
    first = next((pair for pair in pairs if pair[0] != pair[1]), None)
    every: list[Any] = [None] * size
    dist.all_gather_object(every, said)
    if first is None:
        assert every == [""] * size
        return
    for other, text in enumerate(every):
        found = re.findall(r"rank (\d) called (.*?\))(?: where|\ \()", text)
        calls = {int(number): name for number, name in found}
        assert len(calls) == 2 and size - 1 in calls and (other in calls), (seed, text)
        assert calls.pop(size - 1) == first[1] and [*calls.values()] == [first[0]], (seed, text)


def skipped_backward(seed: int) -> None:
    """A net in many buckets, of which the last rank goes on without its backward."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(timeout=timedelta(seconds=20))
    t.manual_seed(seed)
    layers = [nn.Linear(300, 300) for _ in range(random.Random(seed).randint(1, 4))]
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(*layers), process_group=group, bucket_cap_mb=0.2
    )
    loss, said = model(t.ones(2, 300)).sum(), ""
    try:
        if rank == size - 1:
            dist.all_reduce(t.ones(7), group=group)
        else:
            loss.backward()
            dist.barrier(group)
    except DistBackendError as error:
        said = str(error)
    every: list[Any] = [None] * size
    dist.all_gather_object(every, said)
    for text in every:
        calls = re.search(r"rank (\d) called (.*?\)) where rank (\d) called (.*?\)) \(", text)
        assert calls is not None, (seed, text)
        named = {int(calls[1]): calls[2], int(calls[3]): calls[4]}
        assert named.pop(size - 1) == "all_reduce(float32 [7], SUM)", (seed, text)
        (other,) = named.values()
        assert other.startswith("all_reduce(float32 [") and "[7]" not in other, (seed, text)


def every_seed() -> None:
    dist.init_process_group("gloo")
    for seed in range(SEEDS):
        mismatched(seed)
    for seed in range(3):
        skipped_backward(seed)
    dist.barrier()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(0)  # requests of the calls that did not go together are never done


@mpi
@pytest.mark.parametrize("size", slow_but([2, 3, 4], 3))
def test_the_first_difference_is_named(size: int) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__])


if __name__ == "__main__":
    every_seed()
