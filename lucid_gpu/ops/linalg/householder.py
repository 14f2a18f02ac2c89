"""Orthogonal matrices as products of reflections.

A product ``H_1 H_2 ... H_k`` of ``H_i = I - tau_i v_i v_i^H`` is ``I - V T V^H`` with an upper
triangular ``T``: the compact WY form of Schreiber and Van Loan, A Storage-Efficient WY
Representation for Products of Householder Transformations (1989). Written as
``T = (I + D triu(V^H V, 1))^-1 D``, with ``D`` the numbers tau on a diagonal, it divides by no tau.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu.devices import linalg
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.lapack import Triangle
from lucid_gpu.dtypes import unimplemented
from lucid_gpu.ops.arguments import takes_out
from lucid_gpu.ops.linalg.matrices import adjoint, identity_like, lower, upper, with_diagonal
from lucid_gpu.ops.linalg.quotients import by_triangle
from lucid_gpu.ops.memory_formats import columns, columns_order, kept_order, led_in
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import keeping, record
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor


@result_of("geqrf")
class GeQRF(NamedTuple):
    """What `geqrf` returns."""

    a: Tensor
    tau: Tensor


@op
@keeping("input", "tau", output=True)
@columns
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of Householder's reflections.

    Parameters
    ----------
    input : Tensor, shape (..., m, n), n <= m
        ``v_i`` is column ``i`` below the diagonal, with 1 on it and zeros above.
    tau : Tensor, shape (..., k), k <= n

    Returns
    -------
    Tensor, shape (..., m, n)

    Raises
    ------
    RuntimeError
        For shapes or types that do not fit each other.
    NotImplementedError
        For integers and 16-bit floats.
    """
    _check("torch.linalg.householder_product", input, tau)
    m, n = input.shape[-2:]
    V, T = _factors(input, tau)
    first = identity_like(input, m).narrow(1, 0, n)
    product: Tensor = first - V @ (T @ adjoint(V.narrow(-2, 0, n)))
    return product


def _factors(input: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """``V`` and ``T``."""
    k = tau.shape[-1]
    V = with_diagonal(lower(input.narrow(-1, 0, k)), 1.0)
    scales = tau.unsqueeze(-1)
    T = by_triangle(scales * upper(adjoint(V) @ V, 1), scales * identity_like(V, k), _UNIT)
    return V, T


_UNIT = Triangle(upper=True, unit=True)


def _check(name: str, input: Tensor, tau: Tensor) -> None:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if input.shape[-2] < input.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], got "
            f"shape {list(input.shape)}"
        )
    _check_factors(name, input, tau)
    if input.shape[-1] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], got "
            f"{input.shape[-1]} and {tau.shape[-1]}"
        )


def _check_factors(name: str, input: Tensor, tau: Tensor) -> None:
    if input.ndim - tau.ndim != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal "
            f"to {tau.ndim} and input.ndim is equal to {input.ndim}"
        )
    if input.shape[:-2] != tau.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
            f"{list(tau.shape[:-1])}"
        )
    if input.dtype is not tau.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {tau.dtype.type_name} does not match input dtype "
            f"{input.dtype.type_name}"
        )
    _require_wide("orgqr", input)


def _require_wide(name: str, input: Tensor) -> None:
    if input.dtype.category < 2 or input.dtype.itemsize == 2:
        raise unimplemented(name, input.dtype)


@op
@takes_out
@columns
def geqrf(input: Tensor) -> GeQRF:
    """LAPACK's QR decomposition of matrices: ``R`` on and above the diagonal, reflections below.

    `linalg.qr` gives ``Q`` itself, and has a gradient.

    ``tau``, of shape (..., min(m, n)), has the reflections' factors.

    RuntimeError for fewer than two dimensions; NotImplementedError for integers and 16-bit floats.
    """
    if input.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    _require_wide("geqrf", input)
    turned, tau = linalg.call("qr", input.device, input.array, mode="raw")
    arrays = row_major(turned.swapaxes(-1, -2)), tau
    return GeQRF(*record("GeqrfBackward0", arrays, (input,), _geqrf_vjp, dtype=input.dtype))


def _geqrf_vjp(node: Any, *g: Tensor) -> Any:
    raise NotImplementedError("the derivative for 'geqrf' is not implemented: see linalg.qr.")


@op
@takes_out
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """`linalg.householder_product` by LAPACK's name."""
    return householder_product(input, input2)


@op
@takes_out
@columns
def ormqr(
    input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """A product with the whole orthogonal matrix of reflections, which is never formed.

    Parameters
    ----------
    input, input2 : Tensor
        Reflections, as in `linalg.householder_product`.
    input3 : Tensor
        What they are multiplied with.
    left : bool
        Whether the orthogonal matrix stands on the left.
    transpose : bool
        Whether its adjoint is used instead.

    Raises
    ------
    RuntimeError
        For shapes or types that do not fit each other.
    NotImplementedError
        For integers and 16-bit floats.
    """
    _check_product(input, input2, input3, -2 if left else -1)
    input, input3 = led_in(input, kept_order(input)), led_in(input3, columns_order(input3))
    V, T = _factors(input, input2)
    T = adjoint(T) if transpose else T
    change = V @ (T @ (adjoint(V) @ input3)) if left else ((input3 @ V) @ T) @ adjoint(V)
    product: Tensor = input3 - change
    return product


def _check_product(input: Tensor, tau: Tensor, other: Tensor, side: int) -> None:
    name = "torch.ormqr"
    if input.ndim < 2 or other.ndim != input.ndim:
        raise RuntimeError(
            f"{name}: Expected other to have the same number of dimensions as input, at least 2, "
            f"but got other.ndim equal to {other.ndim} and input.ndim is equal to {input.ndim}"
        )
    if other.shape[side] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: other.shape[{side}] must be greater than or equal to tau.shape[-1], got "
            f"{other.shape[side]} and {tau.shape[-1]}"
        )
    if tau.shape[-1] != min(other.shape[side], input.shape[-1]):
        raise RuntimeError(
            f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])"
        )
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(
            f"{name}: other.shape[{side}] must be equal to input.shape[-2], got "
            f"{other.shape[side]} and {input.shape[-2]}"
        )
    if input.dtype is not other.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but input has dtype "
            f"{input.dtype.type_name} and other has dtype {other.dtype.type_name}"
        )
    _check_factors(name, input, tau)


METHODS = (geqrf, orgqr, ormqr)
FUNCTIONS = METHODS
