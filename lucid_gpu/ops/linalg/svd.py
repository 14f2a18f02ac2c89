"""Singular values and what is made from them: pseudoinverses, ranks, least squares."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu.devices import linalg
from lucid_gpu.ops.arguments import takes_out
from lucid_gpu.ops.linalg.matrices import (
    EPSILON,
    LinAlgError,
    absent,
    adjoint,
    conj,
    diagonal_of,
    is_complex,
    is_finite,
    like,
    on_arrays,
    real_type,
    require_matrices,
    require_phase_free,
    with_diagonal,
)
from lucid_gpu.ops.memory_formats import columns, columns_order
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import leads_back, record
from lucid_gpu.ops.reductions import _nothing
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching, on_value
from lucid_gpu.tensor import Tensor

NOT_FINITE = (
    "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite "
    "values."
)


@result_of("linalg_svd")
class SVD(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@op(autocast={"cpu": "float32"})
@columns
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """Singular vectors and values, ``A = U diag(S) Vh``, the values from the largest down.

    Gradient after Townsend, Differentiating the singular value decomposition (2016), extended to
    complex matrices. It is finite where the values are distinct and, if ``m != n``, not zero. Of
    full matrices only the first ``min(m, n)`` vectors have one.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
    full_matrices : bool
        Whether ``U`` and ``Vh`` are square, or have ``min(m, n)`` columns and rows.
    driver : str, optional
        Accepted for compatibility; the libraries choose their algorithm themselves.

    Raises
    ------
    LinAlgError
        For infinite elements and NaN.
    RuntimeError
        For integers, and fewer than two dimensions.
    NotImplementedError
        For 16-bit floats.
    """
    require_matrices("linalg.svd", A)
    if not is_finite(A):
        raise LinAlgError(NOT_FINITE)
    return _decomposed(A, full_matrices)


def _decomposed(A: Tensor, full: bool) -> SVD:
    U, S, Vh = linalg.call("svd", A.device, A.array, full_matrices=full)
    arrays = U, S.astype(real_type(A.dtype).numpy, copy=False), Vh
    return SVD(*record("LinalgSvdBackward0", arrays, (A,), _svd_vjp, keeps_output=True))


def _svd_vjp(node: Any, g_U: Tensor, g_S: Tensor, g_Vh: Tensor) -> Any:
    U, S, Vh = node.saved_values
    if absent(g_U) and absent(g_Vh):
        return (on_arrays(_from_values, U, Vh, g_S),)
    if is_complex(U):
        k = S.shape[-1]
        left = diagonal_of(adjoint(U[..., :k]) @ g_U[..., :k])
        right = diagonal_of(Vh[..., :k, :] @ adjoint(g_Vh[..., :k, :]))
        require_phase_free("svd_backward", left + right, "singular ")
    return (on_arrays(_from_vectors, U, S, Vh, g_U, g_S, g_Vh),)


batching(svd)(on_value)


def _from_values(U: Any, Vh: Any, g_S: Any) -> Any:
    k = g_S.shape[-1]
    return (_first(U, k) * like(g_S[..., None, :], U)) @ Vh[..., :k, :]


def _from_vectors(U: Any, S: Any, Vh: Any, g_U: Any, g_S: Any, g_Vh: Any) -> Any:
    k = S.shape[-1]
    U, V, g_U, g_V = [_first(x, k) for x in (U, adjoint(Vh), g_U, adjoint(g_Vh))]
    squares = S * S
    gaps = with_diagonal(squares[..., None, :] - squares[..., None], 1.0)
    left, right = adjoint(U) @ g_U, adjoint(V) @ g_V
    inner = _skew(left) / gaps * S[..., None, :] + S[..., None] * (_skew(right) / gaps)
    middle = like(g_S, U)
    if is_complex(U):  # the phase both share
        middle = middle + 1j * diagonal_of(left).imag / S
    result = U @ with_diagonal(inner, middle) @ adjoint(V)
    if U.shape[-2] > k:
        beside = g_U / S[..., None, :]
        result = result + (beside - U @ (adjoint(U) @ beside)) @ adjoint(V)
    if V.shape[-2] > k:
        beside = g_V / S[..., None, :]
        result = result + U @ adjoint(beside - V @ (adjoint(V) @ beside))
    return result


def _first(vectors: Any, k: int) -> Any:
    return vectors if vectors.shape[-1] == k else vectors[..., :k]


def _skew(x: Any) -> Any:
    return x - adjoint(x)


@op(autocast={"cpu": "float32"})
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values, shape (..., min(m, n)), from the largest down.

    LinAlgError for infinite elements and NaN; RuntimeError for integers, and fewer than two
    dimensions; NotImplementedError for 16-bit floats.
    """
    if A.requires_grad or A._wrapper is not None:
        return svd(A, False).S
    require_matrices("linalg.svd", A)
    if not is_finite(A):
        raise LinAlgError(NOT_FINITE)
    array = linalg.call("svd", A.device, A.array, compute_uv=False)
    result: Tensor = record("LinalgSvdBackward0", array, (A,), _nothing, dtype=real_type(A.dtype))
    return result


batching(svdvals)(on_value)


# --- from singular values -------------------------------------------------------------------------


def _threshold(A: Tensor, largest: Any, atol: Any, rtol: Any) -> Any:
    """Singular values up to this count as zero."""
    if rtol is None:
        specified = atol is not None and (isinstance(atol, Tensor) or atol > 0)
        rtol = 0.0 if specified else EPSILON[A.dtype] * max(A.shape[-2:])
    atol, rtol = [_beside(t) for t in (0.0 if atol is None else atol, rtol)]
    relative = largest * rtol
    if isinstance(atol, Tensor):
        return relative.maximum(atol.to(relative.dtype))
    return relative.clamp(min=atol)


def _beside(tolerance: Any) -> Any:
    """A tolerance a matrix, against the values of each."""
    return tolerance.unsqueeze(-1) if isinstance(tolerance, Tensor) else tolerance


@op(autocast={"cpu": "float32"})
def pinv(
    input: Tensor,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Tensor:
    """The pseudoinverse (Moore, Penrose) of each matrix.

    Gradient after Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least
    squares problems whose variables separate (1973), (4.12); the rank is taken as constant.

    Parameters
    ----------
    input : Tensor, shape (..., m, n)
    atol, rtol : float or Tensor, optional
        Singular values up to ``max(atol, rtol * largest)`` count as zero; ``rtol`` is by default
        ``max(m, n)`` times the distance of 1 to the next number, or 0 where ``atol`` is given.
    rcond : float or Tensor, optional
        Another name of ``rtol``.
    hermitian : bool
        Whether the matrices are so; only their lower triangles are read then.

    Raises
    ------
    RuntimeError
        For anything but matrices of float32, float64 or complex numbers.
    """
    if input.ndim < 2 or input.dtype not in EPSILON:
        raise RuntimeError(
            f"linalg.pinv({input.dtype.type_name}{{{list(input.shape)}}}): expected a tensor with "
            "2 or more dimensions of float, double, cfloat or cdouble types"
        )
    rtol = rcond if rtol is None else rtol
    value = _pseudoinverse(input.detach(), hermitian, atol, rtol)
    result: Tensor = record(
        "LinalgPinvBackward0", value.array, (input,), _pinv_vjp, (input,), input.dtype,
        keeps_output=True,
    )  # fmt: skip
    return leads_back(result, columns_order(input))


def _pseudoinverse(A: Tensor, hermitian: bool, atol: Any, rtol: Any) -> Tensor:
    from lucid_gpu.ops.elementwise import where

    if hermitian:
        from lucid_gpu.ops.linalg.eigen import eigh

        S, V = eigh(A)
        U, sizes = V, S.abs()
    else:
        U, S, Vh = svd(A, False)
        V, sizes = adjoint(Vh), S
    if not S.shape[-1]:
        return adjoint(A).clone()
    kept = sizes > _threshold(A, sizes.amax(-1, True), atol, rtol)
    inverse = where(kept, 1 / S, 0.0)
    return (V * inverse.unsqueeze(-2).to(A.dtype)) @ adjoint(U)


def _pinv_vjp(node: Any, g: Tensor) -> Any:
    A, P = node.saved_values
    Ph, gh = adjoint(P), adjoint(g)
    outside = gh @ P @ Ph  # turned by what the columns of A leave out
    beside = Ph @ P @ gh  # and by what its rows leave out
    return (outside - A @ (P @ outside) + beside - (beside @ P) @ A - Ph @ g @ Ph,)


@batching(pinv)
def _pinv_batched(level: Batch, f: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Tolerances may be of each example too."""
    given = {name: level.value(value) for name, value in kwargs.items()}
    return level.wrap(f(level.full(input), *[level.value(value) for value in args], **given))


@op(autocast={"cpu": "float32"})
@takes_out
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`pinv` of matrices, (..., m, n), under its old name."""
    return pinv(input, rcond)


@op(autocast={"cpu": "float32"})
def matrix_rank(
    input: Tensor,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Tensor:
    """How many singular values of each matrix are not zero: see `pinv`.

    Parameters
    ----------
    tol : float or Tensor, optional
        Another name of ``atol``, beside which ``rtol`` is 0.

    Raises
    ------
    RuntimeError
        For fewer than two dimensions.
    """
    if input.ndim < 2:
        raise RuntimeError(
            "torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions."
        )
    A = input.detach()
    if tol is not None:
        atol, rtol = tol, 0.0
    if 0 in A.shape[-2:]:
        return A.new_zeros(tuple(A.shape[:-2])).long()
    if hermitian:
        from lucid_gpu.ops.linalg.eigen import eigvalsh

        sizes = eigvalsh(A).abs()
    else:
        sizes = svdvals(A)
    return (sizes > _threshold(A, sizes.amax(-1, True), atol, rtol)).sum(-1)


batching(matrix_rank)(on_value)


@result_of("linalg_lstsq")
class LeastSquares(NamedTuple):
    """What `lstsq` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@op(autocast={"cpu": "float32"})
@columns
def lstsq(
    input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> LeastSquares:
    """The ``X`` of least norm among those that make ``||A X - B||`` least, by the pseudoinverse.

    Parameters
    ----------
    input : Tensor, shape (..., m, n)
    b : Tensor, shape (..., m, k) or (..., m)
    rcond : float, optional
        Singular values up to ``rcond`` times the largest count as zero.
    driver : {"gelsy", "gels", "gelsd", "gelss"}, optional
        Which of rank and singular values are returned; the solution is computed alike.

    Returns
    -------
    LeastSquares
        ``residuals`` are the squares left over; empty unless ``m > n`` and the rank is full (and
        for ``"gelsy"``, the default, as in PyTorch).

    Raises
    ------
    RuntimeError
        For another ``driver``, and shapes or types that do not fit each other.
    NotImplementedError
        For 16-bit floats.
    """
    name = "torch.linalg.lstsq"
    A, driver = input, driver or "gelsy"
    if A.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if not b.ndim:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    require_matrices(name, A)
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    vectors = b.ndim == 1 or (b.ndim == A.ndim - 1 and b.shape == A.shape[:-1])
    B = b.unsqueeze(-1) if vectors else b
    if A.shape[-2] != B.shape[-2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size(-2)")
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype "
            f"{A.dtype.type_name} and other's dtype {B.dtype.type_name}"
        )
    rcond = _rcond(rcond, driver, A)
    X = pinv(A, rtol=rcond) @ B
    leads_back(X, [None, tuple(range(B.ndim))])
    values = svdvals(A.detach())
    rank = matrix_rank(A, rtol=rcond)
    nothing = A.new_empty((0,), dtype=values.dtype)
    left_over = nothing
    if driver != "gelsy" and A.shape[-2] > A.shape[-1] and _all_are(rank, A.shape[-1]):
        left = A @ X - B
        left_over = (left * conj(left)).sum(-2)
        left_over = left_over.real if left_over.dtype.is_complex else left_over
    return LeastSquares(
        X.squeeze(-1) if vectors else X,
        left_over,
        rank.new_empty((0,)) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else nothing,
    )


def _rcond(rcond: float | None, driver: str, A: Tensor) -> float | None:
    """What the driver of LAPACK takes for ``rcond``: where it gives that no sense, a rounding."""
    if rcond is None or driver == "gels":  # which takes the rank to be full
        return None
    senseless = rcond < 0 or (driver == "gelsd" and not 0 < rcond < 1)
    return EPSILON[A.dtype] if senseless else rcond


@op
def _all_are(rank: Tensor, full: int) -> bool:
    return bool((rank == full).all())


@batching(_all_are)
def _all_are_batched(level: Batch, f: Any, rank: Tensor, full: int) -> bool:
    """Residuals are those of all examples, or of none."""
    all_are: bool = f(level.value(rank), full)
    return all_are


METHODS = (pinverse,)
FUNCTIONS = METHODS
