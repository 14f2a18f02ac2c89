"""`torch.return_types`: the tuples with names that ops give, for ``isinstance`` and annotations."""

from __future__ import annotations

from lucid_gpu.ops.linalg.cholesky import Factor
from lucid_gpu.ops.linalg.determinant import SignAndLogarithm
from lucid_gpu.ops.linalg.eigen import EIGENS
from lucid_gpu.ops.linalg.householder import GeQRF
from lucid_gpu.ops.linalg.inverse import Inverse, Solution, Triangular
from lucid_gpu.ops.linalg.ldl import LDL, LDLWithInfo
from lucid_gpu.ops.linalg.lu import LU, PLUS, LUWithInfo
from lucid_gpu.ops.linalg.old_names import OLD_QR, SVD
from lucid_gpu.ops.linalg.qr import QR
from lucid_gpu.ops.linalg.svd import SVD as LinalgSVD
from lucid_gpu.ops.linalg.svd import LeastSquares
from lucid_gpu.ops.named_results import VALUES
from lucid_gpu.ops.order import Extrema
from lucid_gpu.ops.special_functions import Parts
from lucid_gpu.ops.statistics import Histogram, HistogramDD

cummax, cummin, sort, topk = [VALUES[name] for name in ("cummax", "cummin", "sort", "topk")]
max, min, mode = VALUES["max"], VALUES["min"], VALUES["mode"]
kthvalue, median, nanmedian = VALUES["kthvalue"], VALUES["median"], VALUES["nanmedian"]
aminmax, frexp, geqrf, histogram, histogramdd = Extrema, Parts, GeQRF, Histogram, HistogramDD
linalg_lu, lu_unpack = PLUS["linalg_lu"], PLUS["lu_unpack"]
qr, linalg_qr = OLD_QR, QR
slogdet = linalg_slogdet = SignAndLogarithm
svd, linalg_svd, triangular_solve = SVD, LinalgSVD, Triangular
linalg_cholesky_ex, linalg_inv_ex, linalg_solve_ex = Factor, Inverse, Solution
linalg_eig, linalg_eigh = EIGENS["linalg_eig"], EIGENS["linalg_eigh"]
linalg_lstsq, linalg_lu_factor, linalg_lu_factor_ex = LeastSquares, LU, LUWithInfo
linalg_ldl_factor, linalg_ldl_factor_ex = LDL, LDLWithInfo

__all__ = [
    "aminmax",
    "cummax",
    "cummin",
    "frexp",
    "geqrf",
    "histogram",
    "histogramdd",
    "kthvalue",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_eigh",
    "linalg_inv_ex",
    "linalg_ldl_factor",
    "linalg_ldl_factor_ex",
    "linalg_lstsq",
    "linalg_lu",
    "linalg_lu_factor",
    "linalg_lu_factor_ex",
    "linalg_qr",
    "linalg_slogdet",
    "linalg_solve_ex",
    "linalg_svd",
    "lu_unpack",
    "max",
    "median",
    "min",
    "mode",
    "nanmedian",
    "qr",
    "slogdet",
    "sort",
    "svd",
    "topk",
    "triangular_solve",
]
