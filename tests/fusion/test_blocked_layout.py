"""Blocks of the NumPy executor, on every way two operands can broadcast, and every sum of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.fusion import blocked, numpy_source

from .plans import leaf, op, planned, random

SHAPES = [(6, 1, 6), (1, 36), (36, 1), (1, 6, 1, 7, 1), (2, 1, 5, 1, 3), (6, 6), (3, 4, 5)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(numpy_source, "SINGLE", 4)
    monkeypatch.setattr(numpy_source, "SUM_BYTES", 32)
    monkeypatch.setattr(numpy_source, "SHARED_SUM_BYTES", 32)
    monkeypatch.setattr(numpy_source, "block_bytes", lambda alone: 32)
    monkeypatch.setattr(blocked, "_codes", {})


def narrower(shape):
    """Shapes that broadcast to ``shape``."""
    for some in itertools.product(*[(n, 1) if n > 1 else (1,) for n in shape]):
        lead = next((i for i, n in enumerate(some) if n > 1), len(some))
        yield from {some, some[lead:], some[min(lead, 1) :]}


def views(shape):
    """Row-major, turned and cut arrays of a shape."""
    yield random(shape, dt.float32, "positive")
    yield random(shape[::-1], dt.float32, "positive").T
    yield random((*shape[:-1], shape[-1] + 3), dt.float32, "positive")[..., : shape[-1]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_broadcast_and_every_sum(shape):
    for x in views(shape):
        for other in narrower(shape):
            y = random(other, dt.float32, "positive", seed=1)
            for rank in range(len(shape) + 1):
                for axes in itertools.combinations(range(len(shape)), rank):
                    wanted = (x * y).sum(axes, keepdims=True) if axes else x * y
                    plan, arrays, _ = planned([op("mul", leaf(x), leaf(y))], axes or None)
                    (found,) = blocked.Executable(plan)(arrays, [])
                    np.testing.assert_allclose(found, wanted, 1e-5, err_msg=f"{other} {axes}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_expanded_operand(shape):
    x = random(shape, dt.float32, "positive")
    for other in narrower(shape):
        for full in {shape[-rank:] for rank in range(max(len(other), 1), len(shape) + 1)}:
            y = np.broadcast_to(random(other, dt.float32, "positive", seed=1), full)
            for axes in (None, (0,), (len(shape) - 1,)):
                wanted = (x * y).sum(axes, keepdims=True) if axes else x * y
                plan, arrays, _ = planned([op("mul", leaf(x), leaf(y))], axes)
                (result,) = blocked.Executable(plan)(arrays, [])
                np.testing.assert_allclose(result, wanted, 1e-5, err_msg=f"{other} {full} {axes}")


@pytest.mark.parametrize("dims", [(0, 1), (0,), (1,)], ids=str)
def test_what_is_only_repeated_is_rounded_before(dims):
    x = lucid_gpu.zeros(6, 7, dtype=lucid_gpu.float16, requires_grad=True)
    y = x.mean(dims, keepdim=True)
    g = random(tuple(y.shape), dt.float16)
    (gradient,) = lucid_gpu.autograd.grad(y, x, lucid_gpu.from_numpy(g))
    plan, arrays, scalars = planned([gradient._expr])
    executable = blocked.Executable(plan)
    assert not executable.code.scratch  # nothing of full size but the result
    (found,) = executable(arrays, scalars)
    count = np.float32(x.numel() // y.numel())
    wanted = (g.astype(np.float32) / count).astype(np.float16)
    assert np.array_equal(found, np.broadcast_to(wanted, (6, 7)))
