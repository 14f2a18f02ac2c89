"""Blocks of an array, which NumPy's threads take in turn; rows cut into such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.devices import threads
from lucid_gpu.devices.blas import on_few_threads

__all__ = ["each", "each_of_rows", "slices"]

BLOCK = 256 * 1024  # elements: in smaller ones the GIL changes hands too often


def each(blocks: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Call ``work`` for each block, on all threads, with one BLAS thread each.

    Returns
    -------
    list
        What the calls returned, in the blocks' order.
    """
    if len(blocks) == 1:
        return [on_few_threads(0, threads.run_quietly, work, blocks[0])]
    results: list[Any] = [None] * len(blocks)
    waiting = iter(range(len(blocks)))  # its next() is one step: threads share it

    def take() -> None:
        for number in waiting:
            results[number] = work(blocks[number])

    alone = not blocks or threads.team.count == 1
    on_few_threads(0, threads.run_quietly if alone else threads.team.run, take)
    return results


def each_of_rows(rows: int, columns: int, work: Callable[[slice], Any]) -> list[Any]:
    """`each` for blocks of rows that stay in cache."""
    step = max(BLOCK // max(columns, 1), 1)
    return each(slices(rows, step), work)


def slices(extent: int, step: int) -> list[slice]:
    """An axis cut into slices of a length; the last may be shorter."""
    return [slice(first, min(first + step, extent)) for first in range(0, extent, step)]
