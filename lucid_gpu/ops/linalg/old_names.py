"""Names and forms of `lucid_gpu` and of tensors that are not those of `lucid_gpu.linalg`."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu.ops.arguments import takes_out
from lucid_gpu.ops.linalg import lu as _lu
from lucid_gpu.ops.linalg import qr as _qr
from lucid_gpu.ops.linalg import svd as _svd
from lucid_gpu.ops.linalg.matrices import adjoint
from lucid_gpu.ops.linalg.norms import matrix_norm, vector_norm
from lucid_gpu.ops.linalg.qr import QR
from lucid_gpu.ops.named_results import result_of, results_of
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tensor import Tensor


@result_of("svd")
class SVD(NamedTuple):
    """What `lucid_gpu.svd` returns."""

    U: Tensor
    S: Tensor
    V: Tensor


OLD_QR = results_of(QR, "qr")["qr"]


@op(autocast={"cpu": "float32"})
@takes_out
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """`linalg.svd` in its old form: ``V`` instead of its adjoint, by default reduced.

    Parameters
    ----------
    compute_uv : bool
        Where False, both are zeros.
    """
    if not compute_uv:
        m, n = input.shape[-2:]
        batch = tuple(input.shape[:-2])
        U, V = input.new_zeros((*batch, m, m)), input.new_zeros((*batch, n, n))
        return SVD(U, _svd.svdvals(input), V)
    U, S, Vh = _svd.svd(input, not some)
    return SVD(U, S, adjoint(Vh))


@op(autocast={"cpu": "float32"})
@takes_out
def qr(input: Tensor, some: bool = True) -> QR:
    """`linalg.qr` in its old form."""
    result: QR = OLD_QR(*_qr.qr(input, "reduced" if some else "complete"))
    return result


@op
@takes_out
def lu(A: Tensor, pivot: bool = True, get_infos: Truth = False) -> tuple[Tensor, ...]:
    """`linalg.lu_factor` in its old form, with ``info`` after the pivots if that is asked for."""
    factors = _lu.lu_factor_ex(A, pivot=pivot)
    return tuple(factors) if get_infos else (factors.LU, factors.pivots)


@op(autocast={"cpu": "float32"})
@takes_out
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """`linalg.lu_solve` in its old form, with ``B``, of shape (..., n, k), first."""
    return _lu.lu_solve(LU_data, LU_pivots, input)


@op(autocast={"cuda": "float32"})
@takes_out
def frobenius_norm(input: Tensor, dim: object = (), keepdim: bool = False) -> Tensor:
    """`linalg.vector_norm` over dimensions, by default all elements."""
    return vector_norm(input, 2, dim or None, keepdim)


@op(autocast={"cuda": "float32"})
@takes_out
def nuclear_norm(input: Tensor, dim: object = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of the matrices in two dimensions."""
    return matrix_norm(input, "nuc", dim, keepdim)


def _nuclear_norm(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """What `norm` with ``p="nuc"`` is: without dimensions of a matrix only."""
    if dim is None and input.ndim != 2:
        raise RuntimeError(
            f"Expected a tensor with 2 dimensions, but got a tensor with {input.ndim} dimensions "
            "instead."
        )
    return matrix_norm(input, "nuc", (0, 1) if dim is None else dim, keepdim)


_PUBLIC = (svd, qr, lu, lu_solve)
METHODS = (*_PUBLIC, _nuclear_norm)
FUNCTIONS = (*_PUBLIC, frobenius_norm, nuclear_norm)
