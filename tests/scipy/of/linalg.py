"""Calls of `scipy.linalg`."""

from __future__ import annotations

from typing import Any

from tests.ops.samples import fixed, row, t


def sizes(pairs: Any) -> tuple[Any, Any]:
    """Return values, and vectors without their signs, which are arbitrary."""
    return pairs[0], abs(pairs[1])


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
    row("linalg.circulant", t(3)),
    row("linalg.block_diag", t(2, 2), t(1, 3)),
    row("linalg.solve", t(3, 3, of="square"), t(3)),
    *[
        row("linalg.solve", t(3, 3, of="definite"), t(3, 2), lower, assume_a=word, transposed=lower)
        for word, lower in [("sym", True), ("pos", False), ("upper triangular", True)]
    ],
    row("linalg.inv", t(3, 3, of="square")),
    row("linalg.det", t(3, 3, of="square")),
    row("linalg.pinv", t(4, 2), atol=1e-3),
    row("linalg.norm", t(3, 2), 1, 0),
    row("linalg.norm", t(3, 2), "nuc"),
    row("linalg.lstsq", t(4, 2), t(4)).but(vmap="the rank is a whole number"),
    row("linalg.lu_factor", t(3, 3, of="square")),
    row("linalg.lu_solve", (t(3, 3, of="square"), fixed([1, 1, 2], "int32")), t(3, 2)),
    row("linalg.lu_solve", (t(3, 3, of="square"), fixed([1, 1, 2], "int32")), t(3), 1),
    row("linalg.lu", t(3, 2)),
    row("linalg.lu", t(3, 3, of="square"), p_indices=True),
    row("linalg.qr", t(3, 3, of="square")),
    row("linalg.qr", t(4, 2), mode="economic"),
    row("linalg.qr", t(4, 2), mode="r"),
    row("linalg.svd", t(4, 3), False),
    row("linalg.svdvals", t(3, 2)),
    row("linalg.eigh", t(3, 3, of="definite")).compare(sizes),
    row("linalg.eigh", t(2, 2, of="definite"), t(2, 2, of="definite"), lower=False).compare(sizes),
    row("linalg.eigh", t(2, 2, of="definite"), t(2, 2, of="definite"), type=3).compare(sizes),
    row("linalg.eigvalsh", t(2, 2, of="definite"), t(2, 2, of="definite"), type=2),
    row("linalg.sqrtm", t(3, 3, of="definite")),
    row("linalg.logm", t(2, 2, of="definite")),
    row("linalg.expm", t(3, 3)),
    row("linalg.solve_sylvester", t(2, 2, of="square"), t(3, 3, of="square"), t(2, 3)),
    row("linalg.solve_continuous_lyapunov", t(3, 3, of="square"), t(3, 3)),
    row("linalg.polar", t(3, 3)),
    row("linalg.polar", t(4, 2)),
    row("linalg.polar", t(2, 3), "left"),
]
