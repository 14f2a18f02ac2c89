"""QR decompositions."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu.devices import linalg
from lucid_gpu.ops.linalg.matrices import adjoint, identity_like, lower, on_arrays, require_matrices
from lucid_gpu.ops.linalg.quotients import Triangle, by_triangle
from lucid_gpu.ops.memory_formats import columns, columns_order
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import leads_back, record
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor

WITHOUT_Q = (
    "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
    "linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr."
)
NOT_UNIQUE = "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."


@result_of("linalg_qr")
class QR(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor


@op(autocast={"cpu": "float32"})
@columns
def qr(A: Tensor, mode: str = "reduced") -> QR:
    """Matrices with orthonormal columns and upper triangular ones, ``A = Q R``.

    Gradient after Roberts and Roberts, QR and LQ decomposition matrix backpropagation algorithms
    for square, wide, and deep matrices (2020).

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
    mode : {"reduced", "complete", "r"}
        ``Q`` has ``min(m, n)`` columns, or ``m``; or is not computed.

    Raises
    ------
    RuntimeError
        For another ``mode``, and for fewer than two dimensions.
    NotImplementedError
        For 16-bit floats.
    """
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', "
            "or 'complete'"
        )
    require_matrices("linalg.qr", A)
    return _factors(A, mode)


def _factors(A: Tensor, mode: str) -> QR:
    factors = linalg.call("qr", A.device, A.array, mode=mode)
    if mode == "r":
        R: Tensor = record("LinalgQrBackward0", factors, (A,), _r_vjp, dtype=A.dtype)
        return QR(A.new_empty((0,)), R)
    Q, R = record(
        "LinalgQrBackward0", tuple(factors), (A,), _qr_vjp, (), A.dtype, keeps_output=True,
        mode=mode,
    )  # fmt: skip
    return QR(leads_back(Q, columns_order(A) if A.shape[-2] >= A.shape[-1] else None), R)


def _r_vjp(node: Any, g: Tensor) -> Any:
    raise RuntimeError(WITHOUT_Q)


def _qr_vjp(node: Any, g_Q: Tensor, g_R: Tensor) -> Any:
    Q, R = node.saved_values
    m, n = Q.shape[-2], R.shape[-1]
    if node.mode == "complete" and m > n:
        raise RuntimeError(NOT_UNIQUE)
    if m >= n:
        return (on_arrays(_deep_vjp, Q, R, g_Q, g_R),)
    # A = [X Y] and R = [U V]: X = Q U is square, and V = Q^H Y
    V, g_V = R.narrow(-1, m, n - m), g_R.narrow(-1, m, n - m)
    g_Q = g_Q + Q @ V @ adjoint(g_V)
    g_X = on_arrays(_deep_vjp, Q, R.narrow(-1, 0, m), g_Q, g_R.narrow(-1, 0, m))
    from lucid_gpu.ops.shape import cat

    return (cat([g_X, Q @ g_V], -1),)


batching(qr)(on_value)


def _deep_vjp(Q: Any, R: Any, g_Q: Any, g_R: Any) -> Any:
    """``(g_Q + Q copyltu(M)) R^-H`` with ``M = R g_R^H - g_Q^H Q``."""
    M = R @ adjoint(g_R) - adjoint(g_Q) @ Q
    kept = lower(M)
    mirrored = (kept + adjoint(kept)) * (1 - 0.5 * identity_like(M, M.shape[-1]))
    total = g_Q + Q @ mirrored
    return adjoint(by_triangle(R, adjoint(total), Triangle(upper=True)))
