"""Singular values and vectors of a matrix's largest part, by random projections.

Halko, Martinsson and Tropp, Finding structure with randomness: probabilistic algorithms for
constructing approximate matrix decompositions (2009), algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from lucid_gpu.ops.linalg.cholesky import cholesky
from lucid_gpu.ops.linalg.eigen import eigh
from lucid_gpu.ops.linalg.inverse import solve_triangular
from lucid_gpu.ops.linalg.matrices import adjoint, require_matrices
from lucid_gpu.ops.linalg.old_names import SVD
from lucid_gpu.ops.linalg.qr import qr
from lucid_gpu.ops.linalg.svd import svd
from lucid_gpu.ops.random import randn
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor


def _range(A: Tensor, q: int, niter: int) -> Tensor:
    """Orthonormal columns that span nearly what the largest singular vectors do."""
    guess = randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    Q = qr(A @ guess).Q
    for _ in range(niter):
        Q = qr(A @ qr(adjoint(A) @ Q).Q).Q
    return Q


@op
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None) -> SVD:
    """Approximations of the ``q`` largest singular values, ``A - M ~ U diag(S) V^H``.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
    q : int
        A few more than are wanted; at most ``min(m, n)`` count.
    niter : int
        How often the projection is improved.
    M : Tensor, broadcast to A, optional
        What is taken off first.

    Raises
    ------
    RuntimeError
        For integers, and fewer than two dimensions.
    NotImplementedError
        For 16-bit floats.
    """
    require_matrices("svd_lowrank", A)
    q = min(6 if q is None else q, *A.shape[-2:])
    A = A if M is None else A - M
    if A.shape[-2] < A.shape[-1]:  # the longer side is projected
        U, S, V = svd_lowrank(adjoint(A), q, niter)
        return SVD(V, S, U)
    Q = _range(A, q, niter)
    inner, S, Vh = svd(adjoint(Q) @ A, False)
    return SVD(Q @ inner, S, adjoint(Vh))


@op
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> SVD:
    """Approximate principal components: `svd_lowrank` of the rows minus their mean.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        ``m`` samples of ``n`` numbers.
    q : int, optional
        By default ``min(6, m, n)``.

    Raises
    ------
    ValueError
        For a ``q`` that is negative or above ``min(m, n)``, and a negative ``niter``.
    RuntimeError
        For integers, and fewer than two dimensions.
    NotImplementedError
        For 16-bit floats.
    """
    require_matrices("pca_lowrank", A)
    q = min(6, *A.shape[-2:]) if q is None else q
    if not 0 <= q <= min(A.shape[-2:]):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than "
            f"min(m, n)={min(A.shape[-2:])}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)


@op
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: object = None,
    ortho_iparams: object = None,
    ortho_fparams: object = None,
    ortho_bparams: object = None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest or smallest eigenvalues of a symmetric matrix, and their vectors.

    All eigenvalues are computed, by `linalg.eigh`: there are no iterations to start or to stop.

    Parameters
    ----------
    A : Tensor, shape (..., m, m)
        Symmetric, dense or sparse.
    k : int, optional
        How many; by default as many as ``X`` has columns, or 1.
    B : Tensor, shape (..., m, m), optional
        Positive-definite: ``A x = e B x`` is solved, with ``X^T B X`` the identity.
    X : Tensor, shape (..., m, n), optional
        A first guess, which says ``k`` and nothing else.
    n, iK, niter, tol, method, ortho_iparams, ortho_fparams, ortho_bparams : optional
        Of PyTorch's iterations; ignored.
    largest : bool, optional
        True by default.

    Raises
    ------
    NotImplementedError
        For a ``tracker``, which is called after each iteration.
    ValueError
        For a matrix of fewer than 3 k rows.
    RuntimeError
        For integers, and fewer than two dimensions.
    """
    if tracker is not None:
        raise NotImplementedError("lobpcg: there are no iterations that a tracker could follow")
    A = A.to_dense() if A._is_sparse else A
    B = B.to_dense() if B is not None and B._is_sparse else B
    require_matrices("lobpcg", A)
    k = (1 if X is None else X.shape[-1]) if k is None else k
    if A.shape[-1] < 3 * k:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={A.shape[-1]}) is "
            f"smaller than 3 x the number of requested eigenpairs (={k})"
        )
    if B is not None:  # L^-1 A L^-T has the same eigenvalues
        L = cholesky(B)
        half = solve_triangular(L, A, upper=False)
        A = solve_triangular(L, half.mT, upper=False)
    values, vectors = eigh((A + A.mT) / 2)
    if B is not None:
        vectors = solve_triangular(L.mT, vectors, upper=True)
    if largest is False:
        return values[..., :k], vectors[..., :k]
    return values[..., -k:].flip(-1), vectors[..., -k:].flip(-1)


FUNCTIONS = (svd_lowrank, pca_lowrank, lobpcg)
