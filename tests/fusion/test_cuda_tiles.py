"""Kernels that turn operands in shared memory: values, sectors, and when they are chosen."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.core.value import Expr
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import blocked, cuda_executor
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_source import Kernel, work_of
from lucid_gpu.launch.compiling import Text

from .nvrtc import architectures, compiled
from .plans import agree, leaf, needs_compiler, op, planned, random

TURNED = r"A block turns (\d+) x (\d+) elements"
TYPES = [dt.bool, dt.bfloat16, dt.float32, dt.float64, dt.complex128]

# an operand's shape and its permutation, then others that broadcast
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]]] = {
    "whole tiles": ((64, 128), (1, 0), []),
    "edges": ((101, 83), (1, 0), [(83, 101)]),
    "one tile": ((50, 50), (1, 0), [(50,), (50, 1)]),
    "a batch": ((3, 70, 90), (0, 2, 1), [(3, 1, 70), (90, 1)]),
    "reversed": ((45, 6, 50), (2, 1, 0), [(6, 1)]),
    "a middle dimension": ((5, 7, 40, 2, 60), (4, 1, 3, 0, 2), [(40,)]),
    "channels first": ((2, 31, 41, 3), (0, 3, 1, 2), [(3, 1, 1)]),
    "channels last": ((2, 3, 4, 701), (0, 2, 3, 1), [(3,)]),
    "two columns": ((2, 3000), (1, 0), []),
    "one": ((1, 70, 1, 40), (0, 3, 2, 1), [(1,)]),
}


def values(case: str, d: dtype, step: int = 1) -> list[Expr]:
    shape, order, others = CASES[case]
    wide = random((*shape[:-1], shape[-1] * abs(step)), d)[..., ::step]
    total = leaf(wide.transpose(order))
    for k, other in enumerate([*others, total.shape]):
        total = op("eq" if d is dt.bool else "add", total, leaf(random(other, d, seed=k)))
    return [total, op("ne", total, leaf(random(shape, d, seed=9).transpose(order)))]


def kernel(made: list[Expr], **how: Any) -> Kernel:
    return elementwise(work_of(planned(made)[0]), 132, **how)


def same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        if one.dtype.itemsize == 2:  # a sum is rounded once or twice
            agree(one, other)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.each_value
@needs_compiler
@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, d: dtype) -> None:
    plan, arrays, scalars = planned(values(case, d))
    executable = cuda_executor.Executable(plan)
    assert re.search(TURNED, executable.source)
    same(executable(arrays, scalars), blocked.Executable(plan)(arrays, scalars))


@needs_compiler
@pytest.mark.parametrize("order", ["", "reversed", "5"])
@pytest.mark.parametrize("case", CASES)
def test_64_bit_indices_gaps_and_orders(
    case: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, arrays, scalars = planned(values(case, dt.float32, -2))
    monkeypatch.setenv("LUCID_HOST_ORDER", order)
    monkeypatch.setattr(
        cuda_executor, "elementwise", lambda *a, **k: elementwise(*a, **k, long_index=True)
    )
    executable = cuda_executor.Executable(plan)
    assert re.search(TURNED, executable.source) and "const long long rows" in executable.source
    same(executable(arrays, scalars), blocked.Executable(plan)(arrays, scalars))


# In the place of a kernel's pointers: says who reads or writes which element.
SEEN = r"""
template <typename T, int ARRAY> struct lucid_seen {
    T* at;
    T& operator[](long long i) const
    {
        printf("%d %u %u %lld %d\n", ARRAY, blockIdx.x, threadIdx.x, i, (int)sizeof(T));
        return at[i];
    }
};
"""


def seen(made: Kernel) -> Text:
    """The text of a kernel that prints what it accesses."""
    numbers = iter(range(99))
    source = re.sub(
        r"((?:const )?[\w<>]+)\* __restrict__",
        lambda found: f"const lucid_seen<{found[1]}, {next(numbers)}>",
        made.source,
    ).replace("// A block", SEEN + "\n// A block")
    return Text(made.name, source, made.cooperative)


@needs_compiler
@pytest.mark.parametrize("d", TYPES, ids=str)
def test_every_access_uses_full_sectors(
    d: dtype, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, z = random((64, 256), d), random((256, 64), d), random((2, 32, 256), d)
    across = leaf(y.T)
    joined = "add" if d is dt.complex128 else "ne"  # whose tile is too narrow for bytes
    made = [op(joined, op(joined, leaf(x), across), leaf(z.reshape(64, 256))), across]
    plan, arrays, scalars = planned(made)
    monkeypatch.setattr(cuda_executor, "text_of", seen)
    cuda_executor.Executable(plan)(arrays, scalars)
    times: Counter[Any] = Counter()
    sectors: dict[Any, set[int]] = {}
    moved: Counter[Any] = Counter()
    for line in capfd.readouterr().out.splitlines():
        array, block, thread, i, size = map(int, line.split())
        times[array, block, thread] += 1
        access = array, block, thread // 32, times[array, block, thread]
        sectors.setdefault(access, set()).add(i * size // 32)
        moved[access] += size
    assert len({access[0] for access in moved}) == 5  # three loads and two stores
    assert all(moved[access] == 32 * len(touched) for access, touched in sectors.items())


def test_no_two_lanes_in_one_bank() -> None:
    for d in (dt.bool, dt.float16, dt.float32):
        source = kernel([op("ne", leaf(random((128, 128), d).T), leaf(random((1,), d)))]).source
        pitch = int(re.findall(r"t0\[\d+\]\[(\d+)\]", source)[0]) * d.itemsize
        assert len({lane * pitch // 4 % 32 for lane in range(32)}) == 32


def turns(x: Any, *others: Any) -> bool:
    total = op("neg", leaf(x))
    for other in others:
        total = op("add", total, leaf(other))
    return re.search(TURNED, kernel([total]).source) is not None


def test_when_they_are_chosen() -> None:
    x, small = random((64, 64), dt.float32), random((500, 3, 3), dt.float32)
    assert turns(x.T, x) and turns(x[:, ::2].T) and turns(x[::-1].T, x)
    assert not turns(x.T.T) and not turns(x[:, ::2]) and not turns(x, x[:1].T)
    assert not turns(small.transpose(0, 2, 1), small)  # a tile would be mostly empty
    assert not turns(x[:8, :8].T)


@pytest.mark.parametrize("d", [dt.bool, dt.float16, dt.float32, dt.complex128], ids=str)
def test_they_compile(d: dtype) -> None:
    for architecture in architectures():
        compiled(kernel(values("a batch", d)).source, architecture)
    compiled(kernel(values("channels first", d), long_index=True).source, 90)


def test_loads_of_a_tile_are_under_way_together() -> None:
    text = compiled(kernel(values("whole tiles", dt.float32)[:1]).source, 90, as_ptx=True)
    assert len(re.findall(r"bar\.sync", text)) == 1
    assert "local" not in text and "div" not in text and "rem" not in text
