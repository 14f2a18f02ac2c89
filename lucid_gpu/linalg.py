"""Linear algebra: PyTorch's ``torch.linalg``.

Every function takes batches of matrices in the last two dimensions, batches and matrices of no
elements among them, and has first and second derivatives.
"""

from __future__ import annotations

from lucid_gpu.ops.arguments import public
from lucid_gpu.ops.linalg.cholesky import cholesky, cholesky_ex
from lucid_gpu.ops.linalg.determinant import det, slogdet
from lucid_gpu.ops.linalg.eigen import eig, eigh, eigvals, eigvalsh
from lucid_gpu.ops.linalg.householder import householder_product
from lucid_gpu.ops.linalg.inverse import (
    inv,
    inv_ex,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from lucid_gpu.ops.linalg.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from lucid_gpu.ops.linalg.lu import lu, lu_factor, lu_factor_ex, lu_solve
from lucid_gpu.ops.linalg.matrices import LinAlgError
from lucid_gpu.ops.linalg.norms import cond, matrix_norm, norm, vector_norm
from lucid_gpu.ops.linalg.products import (
    diagonal,
    matrix_exp,
    matrix_power,
    multi_dot,
    vander,
    vecdot,
)
from lucid_gpu.ops.linalg.products import linalg_cross as cross
from lucid_gpu.ops.linalg.qr import qr
from lucid_gpu.ops.linalg.svd import lstsq, matrix_rank, pinv, svd, svdvals
from lucid_gpu.ops.matmul import matmul
from lucid_gpu.ops.registry import findable
from lucid_gpu.tape.overrides import METHODS

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power",
    "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex",
    "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot",
    "vector_norm",
]  # fmt: skip

for _name in __all__:
    if type(globals()[_name]) in METHODS:
        globals()[_name] = public(globals()[_name])  # with out=
findable(globals(), __name__)
