"""`torch.return_types`: the tuples with names that ops give, for ``isinstance`` and annotations.

Ops whose tuples have the same names share a class.
"""

from __future__ import annotations

from lucid_gpu.ops.linalg.cholesky import Factor
from lucid_gpu.ops.linalg.determinant import SignAndLogarithm
from lucid_gpu.ops.linalg.eigen import Eigen
from lucid_gpu.ops.linalg.householder import GeQRF
from lucid_gpu.ops.linalg.inverse import Inverse, Solution, Triangular
from lucid_gpu.ops.linalg.lu import LU, PLU, LUWithInfo
from lucid_gpu.ops.linalg.old_names import SVD
from lucid_gpu.ops.linalg.qr import QR
from lucid_gpu.ops.linalg.svd import SVD as LinalgSVD
from lucid_gpu.ops.linalg.svd import LeastSquares
from lucid_gpu.ops.order import Extrema
from lucid_gpu.ops.reductions import ValuesAndIndices
from lucid_gpu.ops.special_functions import Parts
from lucid_gpu.ops.statistics import Histogram, HistogramDD

cummax = cummin = kthvalue = max = median = min = mode = nanmedian = sort = topk = ValuesAndIndices
aminmax, frexp, geqrf, histogram, histogramdd = Extrema, Parts, GeQRF, Histogram, HistogramDD
lu_unpack = linalg_lu = PLU
qr = linalg_qr = QR
slogdet = linalg_slogdet = SignAndLogarithm
svd, linalg_svd, triangular_solve = SVD, LinalgSVD, Triangular
linalg_cholesky_ex, linalg_inv_ex, linalg_solve_ex = Factor, Inverse, Solution
linalg_eig = linalg_eigh = Eigen
linalg_lstsq, linalg_lu_factor, linalg_lu_factor_ex = LeastSquares, LU, LUWithInfo

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
