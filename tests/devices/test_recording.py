"""Recorded calls of NumPy's ufuncs: what NumPy computes, and the same bits in both ways."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from lucid_gpu.devices import loops, recording
from lucid_gpu.devices.loops import address
from lucid_gpu.devices.recording import Recording

GROUPS, REPEATS, ROWS, INNER, COLUMNS = 2, 5, 3, 40, 19
WAYS = ["calls", *(["native"] if loops.available() else [])]
rng = np.random.default_rng(0)
normal = rng.standard_normal


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Without the interpreter, or as calls of NumPy."""
    chosen: str = request.param
    monkeypatch.setattr(recording, "available", lambda: chosen == "native")
    return chosen


def recorded() -> Recording:
    """``a @ b`` with its first columns doubled, and the largest of each row's first elements."""
    calls = Recording()
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


def test_a_recording_is_run_at_many_places_by_many_threads() -> None:
    calls = recorded()
    b = normal((COLUMNS, INNER)).astype(np.float32).T

    def run(_: int) -> None:
        a = normal((REPEATS, ROWS, INNER)).astype(np.float32)
        out = np.empty((REPEATS, ROWS, COLUMNS), np.float32)
        top = np.empty((REPEATS, ROWS, 1), np.float32)
        calls.run([address(x) for x in (a, b, out, top)], REPEATS)
        for found, wanted in zip((out, top), expected(a, b), strict=True):
            np.testing.assert_array_equal(found, wanted)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run, range(30)))


@pytest.mark.parametrize("kind", ["f", "d"])
def test_groups_of_repeats_and_sums_over_repeats(kind: str) -> None:
    calls = Recording(kind)
    item = calls.kind.itemsize
    x = calls.operand((ROWS, COLUMNS), (item, ROWS * item), COLUMNS * ROWS * item, 1000 * item)
    total = calls.operand((COLUMNS,), (item,), 0, COLUMNS * item)
    out = calls.operand((ROWS, COLUMNS), (COLUMNS * item, item), ROWS * COLUMNS * item, 800 * item)
    square, part = calls.scratch(ROWS, COLUMNS), calls.scratch(1, COLUMNS)
    calls.rows(np.multiply, x, x, square)
    calls.matmul(calls.constant(np.ones((1, ROWS))), square, part)
    calls(np.add, total, part, total)
    calls.rows(np.subtract, x, part, out)
    memory, written = normal(2000).astype(kind), np.zeros(2000, kind)
    sums = np.zeros((GROUPS, COLUMNS), kind)
    calls.run([address(memory), address(sums), address(written)], REPEATS, GROUPS)
    for group in range(GROUPS):
        wanted = np.zeros(COLUMNS, kind)
        for repeat in range(REPEATS):
            at = group * 1000 + repeat * ROWS * COLUMNS
            rows = memory[at:][: ROWS * COLUMNS].reshape(COLUMNS, ROWS).T
            part_sum = (np.ones((1, ROWS), kind) @ np.ascontiguousarray(rows * rows))[0]
            wanted += part_sum
            at = group * 800 + repeat * ROWS * COLUMNS
            found = written[at:][: ROWS * COLUMNS].reshape(ROWS, COLUMNS)
            np.testing.assert_array_equal(found, rows - part_sum)
        np.testing.assert_array_equal(sums[group], wanted)


@pytest.mark.parametrize("first", [True, False])
def test_a_product_once_a_group(first: bool) -> None:
    """Rows of ``a`` in each group; each row of the product is then doubled, or was before."""
    calls = Recording("d")
    x = calls.operand((COLUMNS,), (8,), 8 * COLUMNS, 8 * COLUMNS * ROWS)
    y = calls.operand((COLUMNS,), (8,), 8 * COLUMNS, 8 * COLUMNS * ROWS)
    a = calls.operand((ROWS, COLUMNS), (8 * COLUMNS, 8), 0, 8 * COLUMNS * ROWS)
    out = calls.operand((ROWS, COLUMNS), (8 * COLUMNS, 8), 0, 8 * COLUMNS * ROWS)
    w = normal((COLUMNS, COLUMNS))
    if first:
        calls.matmul(a, calls.constant(w), out, once=True)
    calls(np.multiply, x, calls.constant(2.0), y)
    if not first:
        calls.matmul(a, calls.constant(w), out, once=True)
    start, end = normal((GROUPS, ROWS, COLUMNS)), np.empty((GROUPS, ROWS, COLUMNS))
    middle = np.empty_like(start)
    memory = [middle, end, start, middle] if first else [start, middle, middle, end]
    calls.run([address(m) for m in memory], ROWS, GROUPS)
    np.testing.assert_array_equal(end, (start @ w) * 2 if first else (start * 2) @ w)


@pytest.mark.parametrize("step", [1, 3, -2])
def test_a_rest_shorter_than_a_line(step: int) -> None:
    calls = Recording()
    x = calls.operand((10,), (8 * step,), 80 * step, kind="d")
    scale = calls.operand((1,), (8,), 8, kind="d")
    small = calls.operand((10,), (1,), 10, kind="?")
    big = calls.scratch(10, kind="d")
    calls(np.multiply, x, scale, big)
    calls(np.less, big, calls.constant(0.5, "d"), small)
    memory, scales = normal(300), normal(4)
    along = memory[::step]
    for repeats, rest in ((3, 7), (0, 10), (3, 0)):
        found = np.zeros(40, bool)
        calls.run([address(along), address(scales), address(found)], repeats, 1, rest)
        count = 10 * repeats + rest
        wanted = along[:count] * scales.repeat(10)[:count] < 0.5
        np.testing.assert_array_equal(found, np.append(wanted, np.zeros(40 - count, bool)))
    each = np.zeros((2, 10), bool)
    calls.run_each(
        [([address(along), address(scales), address(e)], n) for e, n in zip(each, (4, 9))]
    )
    for row, n in zip(each, (4, 9)):
        wanted = np.append(along[:n] * scales[0] < 0.5, np.zeros(10 - n, bool))
        np.testing.assert_array_equal(row, wanted)


def test_runs_at_a_list_of_places_one_after_another() -> None:
    calls = Recording("d")
    out, x = calls.operand((COLUMNS,), (8,)), calls.operand((COLUMNS,), (8,))
    half = calls.scratch(COLUMNS)
    calls(np.multiply, x, calls.constant(0.5), half)
    calls(np.add, out, half, out)
    keys, values = rng.integers(0, ROWS, 50), normal((50, COLUMNS))
    found, wanted = np.zeros((ROWS, COLUMNS)), np.zeros((ROWS, COLUMNS))
    rows = np.arange(50) * 8 * COLUMNS
    calls.run_at(np.stack([address(found) + keys * 8 * COLUMNS, address(values) + rows], 1))
    np.add.at(wanted, keys, values * 0.5)
    np.testing.assert_array_equal(found, wanted)
    calls.run_at(np.empty((0, 2), np.intp))


def test_rows_that_build_on_one_another() -> None:
    calls = Recording()
    x, y = [calls.operand((INNER, ROWS), (4, 4 * INNER), 4 * ROWS * INNER) for _ in "xy"]
    calls.rows(np.positive, x[:1], y[:1])
    calls.rows(np.add, y[:-1], x[1:], y[1:])
    source = normal((REPEATS, ROWS, INNER)).astype(np.float32)
    found = np.empty_like(source)
    calls.run([address(source), address(found)], REPEATS)
    np.testing.assert_array_equal(found, source.cumsum(-1))


WRONG: list[tuple[Callable[[Recording, Any, Any, Any], Any], type[Exception], str]] = [
    (lambda c, line, rows, flag: c(np.add, line, line[:2], line), ValueError, "no line of 4"),
    (lambda c, line, rows, flag: c(np.exp, line[:-1], line[1:]), ValueError, "other elements"),
    (lambda c, line, rows, flag: c(np.exp, rows.T, c.scratch(12)), ValueError, "is no line"),
    (lambda c, line, rows, flag: c(np.add, line, flag, line), TypeError, "no loop f"),
    (lambda c, line, rows, flag: c(np.modf, line, line, line), TypeError, "no loop ff->f"),
    (lambda c, line, rows, flag: c.rows(np.exp, rows[:2], rows), ValueError, "no 3 rows of 4"),
    (lambda c, line, rows, flag: c.rows(np.exp, rows, rows, first=2, count=3), ValueError, "part"),
    (lambda c, line, rows, flag: c.rows(np.exp, rows, rows, first=[0, -1, 0]), ValueError, "part"),
    (lambda c, line, rows, flag: c.rows(np.add, rows[:, :1], rows, rows[:, :1]), ValueError, "max"),
    (lambda c, line, rows, flag: c.matmul(rows, rows, rows), ValueError, "no product"),
    (lambda c, line, rows, flag: c.operand((2, 2), (8, 4)), ValueError, "operands come before"),
    (lambda c, line, rows, flag: c.run([0, 0, 0], 1, 1, 5), ValueError, "5 elements of lines of 4"),
    (lambda c, line, rows, flag: c.run([0, 0, 0], 1, 2, 3), ValueError, "3 elements of lines"),
    (lambda c, line, rows, flag: c.run_each([([0, 0, 0], 5)]), ValueError, "more than 4 elements"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG)
def test_what_a_recording_cannot_hold_is_refused(
    wrong: Callable[..., Any], error: type[Exception], text: str
) -> None:
    calls = Recording()
    line, rows = calls.operand((4,), (4,)), calls.operand((3, 4), (16, 4))
    flag = calls.operand((4,), (1,), kind="?")
    calls.scratch(1)
    calls(np.exp, line, line)
    with pytest.raises(error, match=text):
        wrong(calls, line, rows, flag)


def test_repeated_calls_follow_one_another() -> None:
    calls = Recording()
    line, matrix = calls.operand((4,), (4,)), calls.operand((4, 4), (16, 4))
    calls(np.exp, line, line)
    calls.matmul(matrix, matrix, calls.scratch(4, 4), once=True)
    with pytest.raises(ValueError, match="follow one another"):
        calls(np.exp, line, line)


def test_calls_made_at_once_give_the_bits_of_recorded_ones() -> None:
    """The same text, where some of a row is hidden, with heads before the rows."""

    def text(calls: Any, a: Any, b: Any, out: Any, top: Any) -> None:
        product = calls.scratch(ROWS, COLUMNS)
        calls.matmul(a, b, product)
        calls.rows(np.positive, calls.constant(-9), product, first=np.arange(ROWS))
        calls(np.positive, calls.constant(-np.inf), top)
        calls.rows(np.maximum, top, product, top)
        calls.rows(np.subtract, product, top, product)
        calls(np.exp, product, out)

    a = normal((REPEATS, ROWS, INNER)).astype(np.float32)
    b = normal((REPEATS, INNER, COLUMNS)).astype(np.float32)
    found = []
    for at_once in (False, True):
        arrays = a, b, np.empty((REPEATS, ROWS, COLUMNS), "f"), np.empty((REPEATS, ROWS, 1), "f")
        if at_once:
            text(recording.Immediate((REPEATS,)), *arrays)
        else:
            calls = Recording()
            text(calls, *[calls.operand(x.shape[1:], x.strides[1:], x.strides[0]) for x in arrays])
            calls.run([address(x) for x in arrays], REPEATS)
        found.append(arrays[2:])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found[0][1][:, 0] == -9).all()  # of a row that is hidden from its first element on
