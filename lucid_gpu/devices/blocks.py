"""Blocks of a kernel's work, handed to the threads of the team: the only place that does so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucid_gpu.devices import threads
from lucid_gpu.devices.blas import on_few_threads

__all__ = ["each", "each_of_rows", "share", "slices"]

BLOCK = 256 * 1024  # elements: in smaller ones the GIL changes hands too often


def share(
    blocks: Sequence[Any],
    work: Callable[[Iterator[Any]], Any],
    alone: bool = False,
    products: bool = True,
) -> None:
    """Have threads call ``work`` with one iterator: each block is drawn once, by one of them.

    Parameters
    ----------
    blocks : sequence
        Where ``work`` puts its results must depend on the block only, so that one thread finds the
        same bits.
    alone : bool
        There is too little work to wake a thread for it.
    products : bool
        BLAS is called, on one thread for each of ours.
    """
    waiting = iter(blocks)  # its next() is one step
    several = not alone and len(blocks) > 1 and threads.team.count > 1
    run = threads.team.run if several else threads.run_quietly
    if products:
        on_few_threads(0, run, lambda: work(waiting))
    else:
        run(lambda: work(waiting))


def each(blocks: Sequence[Any], work: Callable[[Any], Any], small: bool = False) -> list[Any]:
    """Call ``work`` for each block, on all threads, with one BLAS thread each.

    ``small`` says that BLAS uses no more for their products anyway.

    Returns
    -------
    list
        What the calls returned, in the blocks' order.
    """
    if len(blocks) == 1:
        run = threads.run_quietly
        return [run(work, blocks[0]) if small else on_few_threads(0, run, work, blocks[0])]
    results: list[Any] = [None] * len(blocks)

    def take(numbers: Iterator[int]) -> None:
        for number in numbers:
            results[number] = work(blocks[number])

    share(range(len(blocks)), take)
    return results


def each_of_rows(rows: int, columns: int, work: Callable[[slice], Any]) -> list[Any]:
    """`each` for blocks of rows that stay in cache."""
    step = max(BLOCK // max(columns, 1), 1)
    return each(slices(rows, step), work)


def slices(extent: int, step: int) -> list[slice]:
    """An axis cut into slices of a length; the last may be shorter."""
    return [slice(first, min(first + step, extent)) for first in range(0, extent, step)]
