"""Blocks of work are each drawn once, whoever draws them, and results keep their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lucid_gpu.devices import threads
from lucid_gpu.devices.blocks import each, share, slices


@pytest.fixture(params=[1, 2, 3])
def count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    wanted: int = request.param
    monkeypatch.setattr(threads, "team", threads.Team(wanted))
    return wanted


@pytest.mark.parametrize("blocks", [0, 1, 2, 50])
@pytest.mark.parametrize("products", [False, True])
def test_each_block_is_drawn_once(blocks: int, products: bool, count: int) -> None:
    taken: list[int] = []

    def work(waiting: Iterator[int]) -> None:
        for block in waiting:
            taken.append(block)

    share(range(blocks), work, products=products)
    assert sorted(taken) == [*range(blocks)]


def test_results_stand_in_the_order_of_the_blocks(count: int) -> None:
    assert each(slices(10, 4), lambda part: (part.start, part.stop)) == [(0, 4), (4, 8), (8, 10)]


def test_work_for_one_thread_is_done_by_the_caller(count: int) -> None:
    found: set[int] = set()

    def work(waiting: Iterator[int]) -> None:
        for _ in waiting:
            found.add(threading.get_ident())

    share(range(100), work, alone=True)
    assert found == {threading.get_ident()}


def test_several_threads_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks that wait for each other are with two threads."""
    monkeypatch.setattr(threads, "team", threads.Team(2))
    both = threading.Barrier(2)
    each([0, 1], lambda _: both.wait(timeout=30))


def test_the_error_of_a_block_is_raised(count: int) -> None:
    def work(block: int) -> None:
        if block == 3:
            raise ValueError("block 3")

    with pytest.raises(ValueError, match="block 3"):
        each(range(5), work)
