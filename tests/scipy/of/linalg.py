"""Calls of `scipy.linalg`."""

from __future__ import annotations

from tests.ops.samples import fixed, row, t

ROWS = [
    row("linalg.cholesky", t(3, 3, of="definite")),
    row("linalg.cholesky", t(3, 3, of="definite"), lower=True),
    # SciPy leaves what was there below the factor
    row("linalg.cho_factor", t(3, 3, of="definite")).compare(
        lambda result: [result[0][i, i:] for i in range(3)]
    ),
    row("linalg.cho_solve", (t(3, 3, of="factor"), True), t(3, 2)),
    row("linalg.cho_solve", (t(3, 3, of="square"), False), t(3)),
    row("linalg.solve_triangular", t(3, 3, of="square"), t(3)),
    row("linalg.solve_triangular", t(3, 3, of="square"), t(3, 2), "T", True, True),
    row("linalg.toeplitz", t(3)),
    row("linalg.toeplitz", t(3), t(2)),
    row("linalg.hankel", t(3)),
    row("linalg.hankel", t(3), fixed([7.0, 1.0])),
]
