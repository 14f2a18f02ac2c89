"""Recorded calls of NumPy's loops: what a record computes is what NumPy does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lucid_gpu.devices.calls import Calls
from lucid_gpu.devices.loops import address, available

pytestmark = pytest.mark.skipif(
    not available(), reason="the C file was not compiled, or native loops are off"
)

PLACES, ROWS, INNER, COLUMNS = 5, 3, 40, 19
normal = np.random.default_rng(0).standard_normal


def recorded() -> Calls:
    """``a @ b`` with its first columns doubled, and the largest of each row's first elements."""
    calls = Calls()
    a = calls.operand((ROWS, INNER), (4 * INNER, 4), 4 * ROWS * INNER)
    b = calls.operand((INNER, COLUMNS), (4, 4 * INNER))
    out = calls.operand((ROWS, COLUMNS), (4 * COLUMNS, 4), 4 * ROWS * COLUMNS)
    top = calls.operand((ROWS, 1), (4, 4), 4 * ROWS)
    product, counts = calls.scratch(ROWS, COLUMNS), np.arange(ROWS)
    calls.matmul(a, b, product)
    calls(np.multiply, product, calls.constant(2), out)
    calls.rows(np.positive, product, out, first=counts + 1, count=COLUMNS - 1 - counts)
    calls(np.positive, calls.constant(-np.inf), top)
    calls.rows(np.maximum, top, out, top, count=counts)
    return calls


def expected(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    out = a @ b
    doubled = np.arange(COLUMNS) <= np.arange(ROWS)[:, None]
    out[..., doubled] *= 2
    seen = np.arange(COLUMNS) < np.arange(ROWS)[:, None]
    return out, np.where(seen, out, -np.inf).max(-1, keepdims=True)


def test_a_record_is_run_at_many_places_by_many_threads() -> None:
    calls = recorded()
    b = normal((COLUMNS, INNER)).astype(np.float32).T

    def run(_: int) -> None:
        a = normal((PLACES, ROWS, INNER)).astype(np.float32)
        out = np.empty((PLACES, ROWS, COLUMNS), np.float32)
        top = np.empty((PLACES, ROWS, 1), np.float32)
        calls.run([address(x) for x in (a, b, out, top)], PLACES)
        for found, wanted in zip((out, top), expected(a, b), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run, range(30)))


def test_what_a_record_cannot_hold_is_noticed_as_it_is_made() -> None:
    calls = Calls()
    with pytest.raises(AssertionError):
        calls.operand((2, 2), (-8, 4))
    calls.scratch(2)
    with pytest.raises(AssertionError):
        calls.operand((2, 2), (8, 4))
