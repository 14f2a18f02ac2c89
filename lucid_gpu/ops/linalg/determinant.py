"""Determinants and their logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import lapack, linalg
from lucid_gpu.ops.arguments import takes_out
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.linalg.inverse import inverse_of, recorded_inverse
from lucid_gpu.ops.linalg.matrices import (
    adjoint,
    conj,
    identity_like,
    real_type,
    require_square,
    with_diagonal,
)
from lucid_gpu.ops.linalg.svd import svd
from lucid_gpu.ops.memory_formats import columns_order
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import leads_back, record, was_replaced
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor, from_array


@result_of("linalg_slogdet")
class SignAndLogarithm(NamedTuple):
    """What `slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


@op
def det(A: Tensor) -> Tensor:
    """The determinant of each matrix.

    The gradient is ``g`` times the conjugate of the cofactors, ``det(A)^* A^-H`` where the matrix
    has an inverse (Giles, An extended collection of matrix derivative results, 2008, 2.2.4), and
    made from singular values where it has none.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)

    Raises
    ------
    RuntimeError
        For anything but square matrices of floating point numbers.
    """
    return _determinant(A, "linalg.det")


@op
def _determinant(A: Tensor, name: str) -> Tensor:
    require_square(name, A)
    factors = _factors(A)
    if factors:
        array = lapack.determinants(*[f.array for f in factors])
    else:
        array = linalg.call("det", A.device, A.array)
    result: Tensor = record(
        "LinalgDetBackward0", array, (A,), _det_vjp, (A, *factors), A.dtype, keeps_output=True
    )
    return leads_back(result, columns_order(A))


def _factors(A: Tensor) -> tuple[Tensor, ...]:
    """LU factors and pivots of large matrices on a CPU, for the value and for the gradient."""
    if not lapack.usable(A.array):
        return ()
    factors, pivots, _ = lapack.factored(A.array)
    return from_array(factors, A.dtype, A.device), from_array(pivots, dt.int64, A.device)


def _det_vjp(node: Any, g: Tensor) -> Any:
    A, *factors, value = node.saved_values
    if was_replaced(A):
        factors, value = [], det(A)
    singular = value.detach() == 0
    alpha = (g * conj(value)).unsqueeze(-1).unsqueeze(-1)
    if A._wrapper is not None or not singular.any():  # a batch of `vmap` tells nobody its values
        return (alpha * _inverse_adjoint(A, factors),)
    singular = singular.unsqueeze(-1).unsqueeze(-1)
    regular = alpha * _inverse_adjoint(where(singular, identity_like(A, A.shape[-1]), A))
    return (where(singular, g.unsqueeze(-1).unsqueeze(-1) * _cofactors(A), regular),)


batching(_determinant)(on_value)


def _inverse_adjoint(A: Tensor, factors: Sequence[Tensor] = ()) -> Tensor:
    if not factors or open_levels:
        return adjoint(inverse_of(A, "linalg.det", check=False).inverse)
    return adjoint(recorded_inverse(lapack.inverted(*[f.array for f in factors]), A))


def _cofactors(A: Tensor) -> Tensor:
    """Of ``U S V^H``: those of ``S``, products of the other singular values, turned likewise."""
    U, S, Vh = svd(A)
    others = with_diagonal(S.unsqueeze(-2).expand((*S.shape, S.shape[-1])), 1.0).prod(-1)
    turned = conj(det(U) * det(Vh)).unsqueeze(-1).unsqueeze(-1)
    return turned * ((U * others.unsqueeze(-2)) @ Vh)


@op
@takes_out
def slogdet(A: Tensor) -> SignAndLogarithm:
    """The sign of the determinant of each matrix, and the logarithm of its absolute value.

    The gradient of the logarithm is ``A^-H``; the sign of real matrices has none.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)

    Raises
    ------
    RuntimeError
        For anything but square matrices of floating point numbers.
    """
    return _signed_logarithm(A, "linalg.slogdet")


@op
def _signed_logarithm(A: Tensor, name: str) -> SignAndLogarithm:
    require_square(name, A)
    factors = _factors(A)
    if factors:
        sign, size = lapack.signed_logarithms(*[f.array for f in factors])
    else:
        sign, size = linalg.call("slogdet", A.device, A.array)
    parts = sign.astype(A.dtype.numpy), size.astype(real_type(A.dtype).numpy)
    sign, size = record(
        "LinalgSlogdetBackward0",
        parts,
        (A,),
        _slogdet_vjp,
        (A, *factors),
        keeps_output=A.dtype.is_complex,
    )
    return SignAndLogarithm(leads_back(sign, columns_order(A)), size)


def _slogdet_vjp(node: Any, g_sign: Tensor, g_size: Tensor) -> Any:
    A, *factors = node.saved_values
    g = g_size.to(A.dtype)
    if A.dtype.is_complex:
        *factors, sign, _ = factors
        g = g - 1j * (conj(g_sign) * sign).imag
    return (g.unsqueeze(-1).unsqueeze(-1) * _inverse_adjoint(A, factors),)


batching(_signed_logarithm)(on_value)


@op
def logdet(input: Tensor) -> Tensor:
    """The logarithm of each matrix's determinant: NaN where negative, ``-inf`` where it is zero.

    RuntimeError for anything but square matrices of floating point numbers.
    """
    sign, size = _signed_logarithm(input, "logdet")
    if input.dtype.is_complex:
        return size + 1j * sign.angle()
    logarithm: Tensor = where(sign.detach() == -1, math.nan, size)
    return logarithm


METHODS = (det, slogdet, logdet)
FUNCTIONS = METHODS
