"""Lines that are longer than an ``int`` counts are refused before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lucid_gpu.kernels import cross_entropy, layer_norm, rows, softmax

ZERO = np.zeros((), np.float32)


def wide(columns: int) -> Any:
    return np.broadcast_to(ZERO, (1, columns))


CASES: dict[str, Callable[[int], Any]] = {
    "softmax": lambda n: softmax.forward.cuda_c(wide(n), 1, False),
    "softmax of columns": lambda n: softmax.forward.cuda_c(np.broadcast_to(ZERO, (n, 2)), 0, True),
    "gradient": lambda n: softmax.backward.cuda_c(wide(n), wide(n), 1, False),
    "layer norm": lambda n: layer_norm.normalized.cuda_c(wide(n), None, None, 1e-5, False),
    "cross entropy": lambda n: cross_entropy.lines_of((1, n)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("columns", [rows.LONGEST + 1, 1 << 31, 1 << 40])
def test_lines_that_no_int_counts_are_refused(name: str, columns: int) -> None:
    with pytest.raises(RuntimeError, match=f"lines of at most {rows.LONGEST} elements.*{columns}"):
        CASES[name](columns)


def test_the_longest_line_is_counted_with_a_step_beyond() -> None:
    assert rows.counted(rows.LONGEST) == rows.LONGEST
    widest = 1024 * rows.ACCESS  # threads of a block, and one byte an element
    assert rows.LONGEST + widest < 2**31
