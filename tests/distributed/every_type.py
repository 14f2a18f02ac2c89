"""Every collective on every type and layout, beside NumPy; for ranks of any engine."""

from __future__ import annotations

from typing import Any

import numpy as np

import lucid_gpu as t
import lucid_gpu.distributed as dist

FLOATS = (t.float32, t.float64, t.float16, t.bfloat16)
WHOLE = (t.int8, t.uint8, t.int16, t.int32, t.int64)
OPS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG")
COMBINE = {"SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum}


def layouts(x: Any) -> list[Any]:
    """A tensor of 6 elements as it is, transposed, and with gaps: all of shape [3, 2]."""
    gaps = t.zeros(3, 4, dtype=x.dtype, device=x.device)[:, ::2]
    gaps.copy_(x.reshape(3, 2))
    turned = x.reshape(3, 2).t().contiguous().t()
    return [x.reshape(3, 2), turned, gaps]


def values(kind: Any, rank: int) -> Any:
    """Six elements on the host that no rank shares with another."""
    x = t.arange(6.0) * (rank + 1) % 5 + rank + 1
    if kind.is_complex:
        return t.complex(x, x.flip(0)).to(kind)
    return x > 3 if kind == t.bool else x.to(kind)


def combined(kind: Any, op: str, size: int) -> list[Any]:
    """What NumPy makes of the values of all ranks, for comparison."""
    parts = [values(kind, rank) for rank in range(size)]
    wide = [p.tolist() for p in parts]
    if kind == t.bool:
        whole = np.array(wide)
        either = op in ("SUM", "MAX")
        found: Any = whole.any(0) if either else whole.all(0)
    else:
        name = np.complex128 if kind.is_complex else np.int64 if kind in WHOLE else np.float64
        found = COMBINE.get(op, np.maximum).reduce(np.array(wide, name))
        found = found / size if op == "AVG" else found
    expected: list[Any] = t.tensor(found).to(kind).reshape(3, 2).tolist()
    return expected


def reductions(device: str) -> None:
    """all_reduce, reduce and reduce_scatter: every type, op and layout beside NumPy."""
    rank, size = dist.get_rank(), dist.get_world_size()
    results: list[str] = []
    for kind in (*FLOATS, *WHOLE, t.bool, t.complex64, t.complex128):
        for op in OPS:
            if op == "AVG" and not (kind.is_floating_point or kind.is_complex):
                continue
            if kind.is_complex and op not in ("SUM", "AVG"):
                continue
            expected = combined(kind, op, size)
            number = dist.ReduceOp[op]
            near = 2e-2 if kind == t.bfloat16 else 2e-3 if kind == t.float16 else 1e-6
            for i, x in enumerate(layouts(values(kind, rank).to(device))):
                before = x.tolist()
                version = x._version
                y = x.clone() if i == 0 else x
                dist.all_reduce(y, number)
                np.testing.assert_allclose(y.tolist(), expected, near)
                results.append(repr(y.tolist()))  # which tells all bits apart
                assert i == 0 or x._version > version
                if i and op != "SUM":
                    continue
                x = layouts(values(kind, rank).to(device))[i]
                dist.reduce(x, size - 1, number)
                got = expected if rank == size - 1 else before
                np.testing.assert_allclose(x.tolist(), got, near)
    every: list[Any] = [None] * size
    dist.all_gather_object(every, results)
    assert all(one == results for one in every)
    for kind in (t.float32, t.int16, t.bfloat16, t.complex64):
        for layout in range(3):
            parts = [layouts((values(kind, rank) + r).to(device))[layout] for r in range(size)]
            out = layouts(values(kind, rank).to(device))[layout]
            dist.reduce_scatter(out, parts)
            mine = np.array([(values(kind, r) + rank).tolist() for r in range(size)]).sum(0)
            np.testing.assert_allclose(out.tolist(), mine.reshape(3, 2), 2e-2)
            dist.reduce_scatter_tensor(out, t.cat(parts))
            np.testing.assert_allclose(out.tolist(), mine.reshape(3, 2), 2e-2)


def moves(device: str) -> None:
    """What copies: every type and layout beside NumPy."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in (*FLOATS, *WHOLE, t.bool, t.complex64):
        every = [values(kind, r).reshape(3, 2).tolist() for r in range(size)]
        for layout in range(3):

            def mine(layout: int = layout, kind: Any = kind) -> Any:
                return layouts(values(kind, rank).to(device))[layout]

            def empty(layout: int = layout, kind: Any = kind) -> Any:
                return layouts(t.zeros(6, dtype=kind, device=device))[layout]

            x = mine()
            dist.broadcast(x, size - 1)
            assert x.tolist() == every[-1]
            parts = [empty() for _ in range(size)]
            dist.all_gather(parts, mine())
            assert [p.tolist() for p in parts] == every
            whole = t.zeros(3 * size, 2, dtype=kind, device=device)
            dist.all_gather_into_tensor(whole, mine())
            assert whole.tolist() == [row for one in every for row in one]
            collected = [empty() for _ in range(size)] if rank == 0 else None
            dist.gather(mine(), collected, dst=0)
            assert collected is None or [p.tolist() for p in collected] == every
            x = empty()
            given = [layouts(values(kind, r).to(device))[layout] for r in range(size)]
            dist.scatter(x, given if rank == 1 % size else None, src=1 % size)
            assert x.tolist() == every[rank]
            got = [empty() for _ in range(size)]
            dist.all_to_all(got, [mine() for _ in range(size)])
            assert [p.tolist() for p in got] == every
    rows = (t.arange(2.0 * size) + 100 * rank).to(device)
    got = t.zeros_like(rows)
    dist.all_to_all_single(got, rows)
    assert got.tolist() == [100 * r + 2 * rank + i for r in range(size) for i in range(2)]
    sends = list(range(size))  # none for rank 0
    got = t.zeros(rank * size, device=device)
    dist.all_to_all_single(
        got,
        t.full((sum(sends),), float(rank)).to(device),
        [rank] * size if rank else [0] * size,
        sends,
    )
    assert got.tolist() == [float(r) for r in range(size) for _ in range(rank)]
    empty_one = t.zeros(0, device=device)
    dist.all_reduce(empty_one)
    dist.broadcast(empty_one, 0)
    two = [t.ones(2, device=device) * rank, t.ones(3, device=device)]
    dist.all_reduce_coalesced(two)
    assert two[0].tolist() == [size * (size - 1) / 2] * 2 and two[1].tolist() == [size] * 3
