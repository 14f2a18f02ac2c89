"""Random sequences of collectives and messages beside NumPy; for ranks of any engine.

``python -m lucid_gpu.distributed.run --nproc-per-node 3 -m tests.distributed.sequences SEED COUNT``
runs sequences of its own. All ranks draw one plan from the seed, so that each knows what all have;
each draws for itself when it waits for what.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import lucid_gpu as t
import lucid_gpu.distributed as dist

KINDS = (
    *(t.float32, t.float64, t.float16, t.bfloat16, t.int8, t.uint8, t.int16, t.int32, t.int64),
    *(t.bool, t.complex64, t.complex128),
)
SHAPES = ((), (0,), (1,), (7,), (4, 3), (2, 3, 4), (3, 0, 2), (33, 65), (70_000,))
EXACT = ("SUM", "MIN", "MAX", "PRODUCT")


class Sequence:
    """One plan, and what this rank has begun of it."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self.plan, self.device = random.Random(seed), device
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.own = random.Random(f"{seed} {self.rank}")
        self.pending: list[tuple[str, Any, Callable[[], None]]] = []
        self.said: list[str] = []
        everyone = list(range(self.size))
        self.groups = [(None, everyone)]
        for _ in range(2):
            ranks = self.plan.sample(everyone, self.plan.randint(1, self.size))
            self.groups.append((dist.new_group(ranks), sorted(ranks)))

    # --- what tensors hold ------------------------------------------------------------------------

    def numbers(self, shape: Any, kind: Any) -> list[Any]:
        """An array for each rank, of numbers that sums and products of 4 ranks keep exact."""
        draw = np.random.default_rng(self.plan.getrandbits(32))
        found = []
        for _ in range(self.size):
            x = draw.integers(0, 4, shape).astype(np.float64)
            if kind.is_complex:
                x = x + 1j * draw.integers(0, 4, shape)
            found.append(x > 1 if kind == t.bool else x)
        return found

    def tensor(self, values: Any, kind: Any, way: int) -> Any:
        """A tensor of some layout and history, on this rank."""
        x = t.tensor(values).to(kind).to(self.device)
        if way == 1 and x.dim() > 1:
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        elif way == 2 and x.dim():
            gaps = t.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=kind, device=self.device)
            gaps = gaps[..., 1::2]
            gaps.copy_(x)
            x = gaps
        elif way == 3 and kind != t.bool:
            x = x + t.zeros((), dtype=kind, device=self.device)  # pending
        elif way == 4:
            x = t.cat([x.reshape(-1), x.reshape(-1)])[x.numel() :].reshape(x.shape)
        return x

    def combined(self, arrays: list[Any], op: str) -> Any:
        if arrays[0].dtype == np.bool_:
            return np.any(arrays, 0) if op in ("SUM", "MAX") else np.all(arrays, 0)
        if op == "AVG":
            return np.add.reduce(arrays) / len(arrays)
        name = {"SUM": "add", "MIN": "minimum", "MAX": "maximum", "PRODUCT": "multiply"}[op]
        return getattr(np, name).reduce(arrays)

    def same(self, x: Any, expected: Any) -> None:
        got = x.detach().cpu()
        assert tuple(got.shape) == np.shape(expected), (got.shape, np.shape(expected))
        wanted = t.tensor(expected).to(x.dtype)  # rounded once
        if not t.equal(got, wanted):
            np.testing.assert_allclose(
                got.to(t.complex128 if got.is_complex() else t.float64).numpy(),
                expected,
                2.0**-7 if x.dtype == t.bfloat16 else 2.0**-10 if x.dtype == t.float16 else 1e-6,
            )

    # --- the end of a step ------------------------------------------------------------------------

    def later(self, name: str, work: Any, check: Callable[[], None]) -> None:
        """Check now where there is nothing to wait for, else when this rank has waited."""
        self.said.append(name)
        if work is None:
            check()
        else:
            self.pending.append((name, work, check))

    def wait_for_some(self, most: int) -> None:
        self.own.shuffle(self.pending)
        while self.pending and most:
            _, work, check = self.pending.pop()
            if self.own.random() < 0.2:
                while not work.is_completed():
                    pass
            else:
                work.wait()
            check()
            most -= 1

    # --- steps ------------------------------------------------------------------------------------

    def step(self) -> None:
        group, ranks = self.plan.choice(self.groups)
        kind, shape = self.plan.choice(KINDS), self.plan.choice(SHAPES)
        names = ("reduction", "copy", "parts", "rows", "messages", "objects", "other", "order")
        getattr(self, self.plan.choice(names))(group, ranks, kind, shape)
        if self.own.random() < 0.3:
            self.wait_for_some(self.own.randint(1, 3))

    def op_for(self, kind: Any) -> str:
        if kind.is_complex:
            return self.plan.choice(("SUM", "AVG"))
        return self.plan.choice((*EXACT, "AVG") if kind.is_floating_point else EXACT)

    def reduction(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        values, way, op = self.numbers(shape, kind), self.plan.randrange(5), self.op_for(kind)
        root = self.plan.choice((None, *ranks))
        later = self.plan.random() < 0.5
        if self.rank not in ranks:
            return
        x = self.tensor(values[self.rank], kind, way)
        before, version = x.clone() if way == 2 else x * x, x._version
        result = self.combined([values[r] for r in ranks], op)
        number = getattr(dist.ReduceOp, op)
        if root is None:
            work = dist.all_reduce(x, number, group, later)
        else:
            work = dist.reduce(x, root, number, group, later)
        mine = values[self.rank]
        expected = result if root in (None, self.rank) else mine

        def check() -> None:
            self.same(x, expected)
            self.same(before, mine if way == 2 else mine & mine if kind == t.bool else mine * mine)
            assert x._version > version or expected is mine

        self.later(f"{'all_reduce' if root is None else 'reduce'} {op} {kind} {shape}", work, check)

    def copy(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        values, way, root = (
            self.numbers(shape, kind),
            self.plan.randrange(5),
            self.plan.choice(ranks),
        )
        later = self.plan.random() < 0.5
        if self.rank in ranks:
            x = self.tensor(values[self.rank], kind, way)
            work = dist.broadcast(x, root, group, later)
            self.later(f"broadcast {kind} {shape}", work, lambda: self.same(x, values[root]))

    def parts(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        """Lists of a tensor a rank."""
        lists = [self.numbers(shape, kind) for _ in ranks]  # for each member, of each rank
        way, other, later = self.plan.randrange(5), self.plan.randrange(5), self.plan.random() < 0.5
        what, root, op = self.plan.randrange(5), self.plan.choice(ranks), self.op_for(kind)
        if self.rank not in ranks:
            return
        me, rank = ranks.index(self.rank), self.rank
        own = self.tensor(lists[0][rank], kind, way)
        zero = np.zeros_like(lists[0][0])
        empty = [self.tensor(zero, kind, other) for _ in ranks]
        given = [self.tensor(one[rank], kind, way) for one in lists]
        gathered = [lists[0][r] for r in ranks]

        def check() -> None:
            for x, value in zip(empty, gathered):
                self.same(x, value)

        if what == 0:
            work = dist.all_gather(empty, own, group, later)
        elif what == 1:
            work = dist.gather(own, empty if rank == root else None, root, group, later)
            gathered = gathered if rank == root else [zero] * len(ranks)
        elif what == 2:
            work = dist.scatter(empty[0], given if rank == root else None, root, group, later)
            gathered = [lists[me][root]]
        elif what == 3:
            number = getattr(dist.ReduceOp, op)
            work = dist.reduce_scatter(empty[0], given, number, group, later)
            gathered = [self.combined([lists[me][r] for r in ranks], op)]
        else:
            work = dist.all_to_all(empty, given, group, later)
            gathered = [lists[me][r] for r in ranks]
        self.later(f"parts {what} {kind} {shape}", work, check)

    def rows(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        """One tensor whose rows belong to ranks."""
        n, later = len(ranks), self.plan.random() < 0.5
        way, other, what = self.plan.randrange(5), self.plan.randrange(5), self.plan.randrange(3)
        op = self.op_for(kind)
        shape = shape or (2,)
        values = self.numbers((n * shape[0], *shape[1:]), kind)
        counts = [[self.plan.randrange(4) for _ in ranks] for _ in ranks]  # sender, receiver
        sent = [self.numbers((sum(row), 3), kind)[0] for row in counts]
        if self.rank not in ranks:
            return
        me, rank, rows = ranks.index(self.rank), self.rank, shape[0]
        if what == 0:
            into = self.tensor(np.zeros_like(values[0]), kind, other)
            mine = self.tensor(values[rank][:rows], kind, way)
            work = dist.all_gather_into_tensor(into, mine, group, later)
            expected = np.concatenate([values[r][:rows] for r in ranks])
        elif what == 1:
            into = self.tensor(np.zeros_like(values[0][:rows]), kind, other)
            mine = self.tensor(values[rank], kind, way)
            number = getattr(dist.ReduceOp, op)
            work = dist.reduce_scatter_tensor(into, mine, number, group, later)
            cut = slice(me * rows, me * rows + rows)
            expected = self.combined([values[r][cut] for r in ranks], op)
        else:
            into_counts = [row[me] for row in counts]
            into = self.tensor(np.zeros((sum(into_counts), 3), values[0].dtype), kind, other)
            mine = self.tensor(sent[me], kind, way)
            work = dist.all_to_all_single(into, mine, into_counts, counts[me], group, later)
            cuts = [np.cumsum([0, *row]) for row in counts]
            pieces = [sent[i][cuts[i][me] : cuts[i][me + 1]] for i in range(n)]
            expected = np.concatenate(pieces)
        self.later(f"rows {what} {kind} {shape}", work, lambda: self.same(into, expected))

    def messages(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        if len(ranks) == 1:
            return
        values, way, what = (
            self.numbers(shape, kind),
            self.plan.randrange(5),
            self.plan.randrange(3),
        )
        source, target = self.plan.sample(ranks, 2)
        tag = self.plan.randrange(3)
        if self.rank not in ranks:
            return
        x, zero = self.tensor(values[self.rank], kind, way), np.zeros_like(values[0])
        if what == 2:  # round the ring
            me, n = ranks.index(self.rank), len(ranks)
            into = self.tensor(zero, kind, way)
            before, following = ranks[me - 1], ranks[(me + 1) % n]
            ops = [
                dist.P2POp(dist.irecv, into, before, group, 7),
                dist.P2POp(dist.isend, x, following, group, 7),
            ]
            self.own.shuffle(ops)
            works = dist.batch_isend_irecv(ops)
            for op, work in zip(ops, works):
                if op.op is dist.isend:
                    self.later("ring", work, lambda: None)
                else:
                    self.later("ring", work, lambda: self.same(into, values[before]))
        elif self.rank == source and what == 0:
            dist.send(x, target, group, tag)
        elif self.rank == source:
            self.later(f"isend {kind}", dist.isend(x, target, group, tag), lambda: None)
        elif self.rank == target:
            into = self.tensor(zero, kind, way)
            if what == 0:
                assert dist.recv(into, source, group, tag) == source
                self.same(into, values[source])
            else:
                work = dist.irecv(into, source, group, tag)
                self.later(f"irecv {kind}", work, lambda: self.same(into, values[source]))

    def objects(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        what, root, length = (
            self.plan.randrange(4),
            self.plan.choice(ranks),
            self.plan.randrange(99),
        )
        if self.rank not in ranks:
            return
        mine, none = {"rank": self.rank, "text": "x" * length * self.rank}, [None] * len(ranks)
        every = [{"rank": r, "text": "x" * length * r} for r in ranks]
        got: list[Any] = list(none)
        if what == 0:
            dist.all_gather_object(got, mine, group)
            expected: list[Any] = every
        elif what == 1:
            dist.gather_object(mine, got if self.rank == root else None, root, group)
            expected = every if self.rank == root else none
        elif what == 2:
            got = [mine, None]
            dist.broadcast_object_list(got, root, group)
            expected = [every[ranks.index(root)], None]
        else:
            got = [None]
            dist.scatter_object_list(got, every if self.rank == root else None, root, group)
            expected = [mine]
        assert got == expected, (got, expected)
        self.said.append(f"objects {what}")

    def other(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        what, values = self.plan.randrange(4), [self.numbers(s, kind) for s in ((3,), shape, ())]
        later, op = self.plan.random() < 0.5, self.op_for(kind)
        if self.rank not in ranks:
            return
        if what == 0:
            self.later("barrier", dist.barrier(group, later), lambda: None)
        elif what == 1:
            dist.monitored_barrier(group)
        else:
            tensors = [self.tensor(v[self.rank], kind, 1) for v in values]
            future = dist.all_reduce_coalesced(tensors, getattr(dist.ReduceOp, op), group, later)

            def check() -> None:
                for x, v in zip(tensors, values):
                    self.same(x, self.combined([v[r] for r in ranks], op))

            if future is not None:
                future.wait()
            check()
            self.said.append("all_reduce_coalesced")

    def order(self, group: Any, ranks: list[int], kind: Any, shape: Any) -> None:
        """Wait for all there is, or make another group."""
        if self.plan.random() < 0.7 or len(self.groups) > 5:
            self.wait_for_some(-1)
            return
        members = self.plan.sample(range(self.size), self.plan.randint(1, self.size))
        self.groups.append((dist.new_group(members), sorted(members)))


def run(seeds: range, steps: int = 40, device: str = "cpu") -> None:
    """Run sequences; the error of one names its seed and the steps before."""
    for seed in seeds:
        sequence = Sequence(seed, device)
        try:
            for _ in range(steps):
                sequence.step()
            sequence.wait_for_some(-1)
            for group, ranks in sequence.groups[1:]:
                if sequence.rank in ranks:
                    dist.destroy_process_group(group)
        except BaseException as error:
            said = "\n".join(sequence.said[-8:])
            raise AssertionError(f"seed {seed} on rank {sequence.rank} after:\n{said}") from error


if __name__ == "__main__":
    dist.init_process_group("gloo")
    first, count = int(sys.argv[1]), int(sys.argv[2])
    run(range(first, first + count))
    if dist.get_rank() == 0:
        print(f"{count} sequences from {first} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()
