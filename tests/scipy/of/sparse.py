"""Calls of `scipy.sparse`; tests/scipy/test_sparse.py has those of sparse operands."""

from __future__ import annotations

from typing import Any

from tests.ops.samples import fixed, row, t

NEITHER = "sparse tensors have neither"


def dense(matrix: Any) -> Any:
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix.to_dense()


ROWS = [
    *[
        row(f"sparse.{form}_{kind}", arg1, shape=(3, 2))
        .but(vmap=NEITHER, forward=NEITHER)
        .compare(dense)
        for kind in ("array", "matrix")
        for form, arg1 in [
            ("coo", (t(3), (fixed([0, 2, 2]), fixed([1, 0, 1])))),
            ("csc", (t(3), fixed([1, 0, 2]), fixed([0, 1, 3]))),
            ("csr", (t(3), fixed([1, 0, 1]), fixed([0, 2, 2, 3]))),
        ]
    ],
    row("sparse.linalg.spsolve", t(3, 3, of="square"), t(3)),
    row("sparse.linalg.spsolve", t(3, 3, of="square"), t(3, 2)),
    row("sparse.linalg.cg", t(3, 3, of="definite"), t(3), rtol=1e-13).compare(lambda r: r[0]),
    row("sparse.linalg.gmres", t(3, 3, of="square"), t(3), rtol=1e-13)
    .compare(lambda r: r[0])
    .but(float32="its roundings are larger than rtol"),
    row("sparse.linalg.eigsh", t(4, 4, of="definite"), 2, return_eigenvectors=False).but(
        arrays="it begins at random",
        gradients="that of symmetric matrices: tests/scipy/test_sparse.py",
    ),
    row("sparse.linalg.expm_multiply", t(2, 2, of=(-0.4, 0.4)), t(2)).but(
        vmap="its steps depend on values"
    ),
]
