"""Rows cut into blocks that stay in cache, which threads take from a shared counter."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lucid_gpu.devices import threads
from lucid_gpu.devices.blas import on_few_threads

__all__ = ["each_block"]

BLOCK = 256 * 1024  # elements: in smaller ones the GIL changes hands too often


def each_block(rows: int, columns: int, work: Callable[[slice], Any]) -> list[Any]:
    """Call ``work`` for blocks of rows, each call with one BLAS thread.

    Returns
    -------
    list
        What the calls returned, in the rows' order.
    """
    step = max(BLOCK // max(columns, 1), 1)
    blocks = [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
    results: list[Any] = [None] * len(blocks)
    counter = itertools.count()

    def take() -> None:
        for number in counter:  # threads share it: each number is drawn once
            if number >= len(blocks):
                return
            results[number] = work(blocks[number])

    alone = len(blocks) == 1 or threads.team.count == 1
    on_few_threads(0, threads.run_quietly if alone else threads.team.run, take)
    return results
