"""`scipy.linalg` with derivatives: matrices in the last two dimensions, batches before them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu import linalg as ours
from lucid_gpu.devices import backend_of_array, scipy
from lucid_gpu.numpy import matrices
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors, inexact
from lucid_gpu.ops.linalg.lu import lu_unpack
from lucid_gpu.ops.linalg.matrices import EPSILON, require_square
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import cat
from lucid_gpu.ops.stacking import block_diag as blocks
from lucid_gpu.ops.stacking import broadcast_shapes
from lucid_gpu.scipy.rows import composed, computed, others, refused
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, Call, batching, jvp, on_value
from lucid_gpu.tensor import Tensor

__all__ = ["block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "det", "eigh"]
__all__ += ["eigvalsh", "expm", "hankel", "inv", "logm", "lstsq", "lu", "lu_factor", "lu_solve"]
__all__ += ["norm", "null_space", "orth", "pinv", "polar", "qr", "schur", "solve"]
__all__ += ["solve_continuous_lyapunov", "solve_sylvester", "solve_triangular", "sqrtm", "svd"]
__all__ += ["svdvals", "toeplitz"]


def _numbers(*values: Any) -> list[Tensor]:
    """Return `values` as tensors of one floating point or complex type and one device."""
    return alike(*[inexact(t) for t in as_tensors(values)])


def _columns(b: Tensor) -> Tensor:
    """Return `b` as matrices: SciPy takes one dimension for a vector, more for matrices."""
    return b.unsqueeze(-1) if b.ndim == 1 else b


def _like(x: Tensor, b: Tensor) -> Tensor:
    """Return the solution `x` of `_columns(b)` as vectors where `b` is one."""
    return x.squeeze(-1) if b.ndim == 1 else x


def _mirrored(a: Tensor, lower: bool, hermitian: bool = True) -> Tensor:
    """Return the Hermitian or symmetric matrices of one triangle of `a`; the other is not read."""
    require_square("scipy.linalg", a)
    half = a.tril(-1) if lower else a.triu(1)
    other = half.mH if hermitian else half.mT
    return half + other + a.diagonal(0, -2, -1).diag_embed()


@composed("linalg", domain="positive definite `a`")
def cholesky(a: Any, lower: bool = False) -> Tensor:
    """Return the factor of `a`, (..., n, n), by the triangle that it fills: upper by default."""
    (a,) = _numbers(a)
    return ours.cholesky(_mirrored(a, lower), upper=not lower)


@composed("linalg", domain="positive definite `a`")
def cho_factor(a: Any, lower: bool = False) -> tuple[Tensor, bool]:
    """Return the factor of `a` for `cho_solve`, and `lower`; its other triangle is zero."""
    return cholesky(a, lower), lower


@composed("linalg", by="c_and_lower b")
def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Tensor:
    """Return the solution of ``A x = b`` by the answer of `cho_factor`, of one triangle."""
    c, lower = c_and_lower
    c, b = _numbers(c, b)
    first = solve_triangular(c, _columns(b), 2 - 2 * lower, lower)
    return _like(solve_triangular(c, first, 2 * lower, lower), b)


@composed("linalg", domain="no zero on the diagonal of `a`", by="a b")
def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """Return the solution of ``op(a) x = b`` for one triangle of `a`, (..., n, n).

    Parameters
    ----------
    a, b : Tensor or array
        Of shapes (..., n, n) and (n,) or (..., n, k).
    trans : {0, 1, 2, "N", "T", "C"}
        What ``op`` is: nothing, the transpose, its conjugate.
    lower, unit_diagonal : bool
        Whether the lower triangle is read, and whether its diagonal counts as ones.

    Raises
    ------
    ValueError
        For another `trans`.
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}")
    a, b = _numbers(a, b)
    if trans not in (0, "N"):
        a, lower = (a.mT if trans in (1, "T") else a.mH), not lower
    x = ours.solve_triangular(a, _columns(b), upper=not lower, unitriangular=unit_diagonal)
    return _like(x, b)


@composed("linalg", by="c r")
def toeplitz(c: Any, r: Any = None) -> Tensor:
    """Return the matrix of first column `c` and first row `r`, by default `c` conjugated.

    Of (..., m) and (..., n) it is (..., m, n); the first number of `r` is not read.
    """
    c, r = _numbers(c, as_tensor(c).conj() if r is None else r)
    return hankel(c.flip(-1), r).flip(-2)


@composed("linalg", by="c r")
def hankel(c: Any, r: Any = None) -> Tensor:
    """Return the matrix of first column `c` and last row `r`, by default zeros.

    Of (..., m) and (..., n) it is (..., m, n); the first number of `r` is not read.
    """
    c, r = _numbers(c, as_tensor(c) * 0 if r is None else r)
    return cat([c, r[..., 1:]], -1).unfold(-1, r.shape[-1], 1)


@composed("linalg")
def circulant(c: Any) -> Tensor:
    """Return the matrix of first column `c`, (..., n), whose columns are `c` rolled."""
    c = as_tensor(c)
    return toeplitz(c, c.flip(-1).roll(1, -1))


@composed("linalg")
def block_diag(*arrs: Any) -> Tensor:
    """Return the matrix that has `arrs`, each of at most two dimensions, on its diagonal."""
    return blocks(*alike(*as_tensors(arrs)))


# --- systems, inverses, norms ---------------------------------------------------------------------

_READ: dict[Any, Callable[[Tensor, bool], Tensor]] = {
    **dict.fromkeys((None, "gen", "general", "banded"), lambda a, lower: a),
    "diagonal": lambda a, lower: a.diagonal(0, -2, -1).diag_embed(),
    "tridiagonal": lambda a, lower: a.tril(1).triu(-1),
    "upper triangular": lambda a, lower: a.triu(),
    "lower triangular": lambda a, lower: a.tril(),
    **dict.fromkeys(("sym", "symmetric"), lambda a, lower: _mirrored(a, lower, False)),
    **dict.fromkeys(("her", "hermitian"), lambda a, lower: _mirrored(a, lower)),
    **dict.fromkeys(("pos", "positive definite"), lambda a, lower: _mirrored(a, lower)),
}


@composed("linalg", domain="invertible `a`", by="a b")
def solve(
    a: Any, b: Any, lower: bool = False, assume_a: str | None = None, transposed: bool = False
) -> Tensor:
    """Return the solution of ``a x = b``, or of ``a.T x = b`` where `transposed`.

    Parameters
    ----------
    a, b : Tensor or array
        Of shapes (..., n, n) and (n,) or (..., n, k).
    lower : bool
        Which triangle is read of a symmetric, Hermitian or positive definite matrix.
    assume_a : str, optional
        SciPy's word for what `a` is: only what its structure needs of it is read.

    Raises
    ------
    LinAlgError
        For a singular matrix.
    ValueError
        For another `assume_a`.
    """
    if assume_a not in _READ:
        raise ValueError(f"assume_a is one of {[*_READ]}, got {assume_a!r}")
    a, b = _numbers(a, b)
    if assume_a in ("pos", "positive definite") and not (transposed and a.dtype.is_complex):
        return cho_solve(cho_factor(a, lower), b)
    a = _READ[assume_a](a, lower)
    return _like(matrices.solve(a.mT if transposed else a, _columns(b)), b)


@composed("linalg", domain="invertible `a`")
def inv(a: Any) -> Tensor:
    """Return the inverses of `a`, (..., n, n)."""
    return matrices.inv(a)


@composed("linalg")
def det(a: Any) -> Tensor:
    """Return the determinants of `a`, (..., n, n)."""
    return matrices.det(a)


@composed("linalg", domain="constant rank")
def pinv(a: Any, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """Return the pseudoinverses of `a`, (..., m, n).

    Singular values up to ``atol + rtol * largest`` count as none.
    """
    (a,) = _numbers(a)
    if atol is not None and rtol is not None:
        atol, rtol = atol + rtol * ours.svdvals(a.detach()).amax(-1), 0.0
    elif atol is not None:
        atol = atol + max(a.shape[-2:]) * EPSILON[a.dtype] * ours.svdvals(a.detach()).amax(-1)
    return ours.pinv(a, atol=atol, rtol=rtol)


@composed("linalg")
def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the norm of vectors or matrices, over `axis`, or of all of `a`."""
    return matrices.norm(a, ord, axis, keepdims)


@composed("linalg", domain="constant rank", by="a b")
def lstsq(a: Any, b: Any, cond: float | None = None) -> tuple[Any, ...]:
    """Return the `x` of least ``|a x - b|``, squares left over, the rank, singular values of `a`.

    Singular values up to `cond` times the largest count as none.
    """
    (a,) = _numbers(a)
    x, left, rank, values = matrices.lstsq(a, b, EPSILON[a.dtype] if cond is None else cond)
    return x, (left.squeeze(0) if x.ndim == 1 and len(left) else left), rank, values


# --- factors --------------------------------------------------------------------------------------


@composed("linalg", domain="no pivot is zero, and their order constant")
def lu_factor(a: Any) -> tuple[Tensor, Tensor]:
    """Return the factors of `a`, (..., m, n), in one matrix, and the rows exchanged, from 0."""
    factors, pivots, _ = ours.lu_factor_ex(*_numbers(a))
    return factors, pivots - 1


@composed("linalg", by="lu_and_piv b")
def lu_solve(lu_and_piv: tuple[Any, Any], b: Any, trans: Any = 0) -> Tensor:
    """Return the solution of ``op(A) x = b`` by the answer of `lu_factor`.

    `trans` is as for `solve_triangular`.
    """
    factors, b = _numbers(lu_and_piv[0], b)
    rows = as_tensor(lu_and_piv[1], factors).int() + 1
    P, B = lu_unpack(factors, rows, unpack_data=False).P, _columns(b)
    if trans in (0, "N"):
        y = solve_triangular(factors, P.mT @ B, 0, True, True)
        return _like(solve_triangular(factors, y), b)
    y = solve_triangular(factors, B, trans)
    return _like(P @ solve_triangular(factors, y, trans, True, True), b)


@composed("linalg", domain="no pivot is zero, and their order constant")
def lu(a: Any, permute_l: bool = False, p_indices: bool = False) -> tuple[Tensor, ...]:
    """Return ``P, L, U`` with ``a = P L U``; ``P L, U`` where `permute_l`.

    Where `p_indices`, the first result is the row of ``L`` that each row of ``P L`` is.
    """
    P, L, U = ours.lu(*_numbers(a))
    if permute_l:
        return P @ L, U
    return (P.argmax(-1) if p_indices else P), L, U


@composed(
    "linalg",
    domain="full rank",
    refused="a gradient through a full `Q` of more rows than columns, which is not unique",
)
def qr(a: Any, mode: str = "full") -> tuple[Tensor, ...]:
    """Return orthonormal `Q` and upper triangular `R` with ``a = Q R``.

    Parameters
    ----------
    a : Tensor, shape (..., m, n)
    mode : {"full", "economic", "r"}
        Whether ``Q`` has m columns, or min(m, n), or ``R`` comes alone.

    Raises
    ------
    ValueError
        For another `mode`.
    """
    if mode not in ("full", "economic", "r"):
        raise ValueError(f"mode is 'full', 'economic' or 'r', got {mode!r}")
    (a,) = _numbers(a)
    if mode == "r" and a.shape[-2] > a.shape[-1]:
        R = ours.qr(a).R
        return (cat([R, R.new_zeros((*R.shape[:-2], a.shape[-2] - R.shape[-2], R.shape[-1]))], -2),)
    factors = tuple(ours.qr(a, "reduced" if mode == "economic" else "complete"))
    return factors[1:] if mode == "r" else factors


@composed("linalg", domain="distinct singular values; of vectors, none zero")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return ``U, s, Vh`` with ``a = U diag(s) Vh``, or `s` alone.

    Of full matrices only the first min(m, n) vectors have a gradient.
    """
    return matrices.svd(a, full_matrices, compute_uv)


@composed("linalg")
def svdvals(a: Any) -> Tensor:
    """Return the singular values of `a`, (..., m, n), from the largest down."""
    return matrices.svdvals(a)


@composed("linalg", domain="distinct eigenvalues; positive definite `b`", by="a b")
def eigh(
    a: Any, b: Any = None, *, lower: bool = True, eigvals_only: bool = False, type: int = 1
) -> Any:
    """Return ascending eigenvalues and eigenvectors of Hermitian matrices, of one triangle.

    Parameters
    ----------
    a, b : Tensor or array, shape (..., n, n)
        `b` is by default 1.
    lower : bool
        Which triangle of both is read.
    eigvals_only : bool
        Whether the values come alone.
    type : {1, 2, 3}
        What has the eigenvalues: ``a v = w b v``, ``a b v = w v`` or ``b a v = w v``.

    Raises
    ------
    ValueError
        For another `type`.
    """
    if type not in (1, 2, 3):
        raise ValueError(f"type is 1, 2 or 3, got {type!r}")
    if b is None:
        a = _mirrored(_numbers(a)[0], lower)
        return matrices.eigvalsh(a) if eigvals_only else matrices.eigh(a)
    a, b = _numbers(a, b)
    a, L = _mirrored(a, lower), ours.cholesky(_mirrored(b, lower))
    if type == 1:
        half = solve_triangular(L, a, lower=True)
        inner = solve_triangular(L, half.mH, lower=True)
    else:
        inner = L.mH @ a @ L
    inner = _mirrored(inner, True)
    if eigvals_only:
        return matrices.eigvalsh(inner)
    w, v = matrices.eigh(inner)
    return w, L @ v if type == 3 else solve_triangular(L, v, 2, lower=True)


@composed("linalg", domain="positive definite `b`", by="a b")
def eigvalsh(a: Any, b: Any = None, *, lower: bool = True, type: int = 1) -> Tensor:
    """Return the eigenvalues that `eigh` returns."""
    values: Tensor = eigh(a, b, lower=lower, eigvals_only=True, type=type)
    return values


# --- functions of matrices ------------------------------------------------------------------------


def _each(function: Callable[..., Any], *arrays: Any) -> Any:
    """Return `function` of matrices, one by one: old SciPy and CuPy take no batches."""
    if arrays[0].ndim == 2:
        return function(*arrays)
    if not len(arrays[0]):
        return arrays[-1]
    ones = [_each(function, *one) for one in zip(*arrays, strict=True)]
    return backend_of_array(arrays[0]).xp.stack(ones)  # type: ignore[union-attr]


def _library(name: str, *inputs: Tensor) -> Any:
    function = scipy.function(inputs[0].device.type, name)
    array = computed(name, functools.partial(_each, function), *inputs)
    if array.dtype.kind == "c" and not inputs[0].dtype.is_complex:
        raise ValueError(f"scipy.{name} of this real matrix is complex: give it A + 0j")
    return array


def _function_of(name: str, frechet: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the function ``linalg.<name>`` of a matrix.

    ``frechet(A, R, E)`` is its derivative at `A`, whose value is `R`, in the direction `E`; that at
    the adjoint of `A` is its adjoint (Higham, Functions of Matrices, 2008, 3.2).
    """

    @op
    def apply(A: Tensor) -> Tensor:
        array = _library(f"linalg.{name}", A)
        title = f"{name.capitalize()}Backward0"
        result: Tensor = record(title, array, (A,), vjp, (A,), A.dtype, keeps_output=True)
        return result

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        A, R = node.saved_values
        return (frechet(A.mH, R.mH, g),)

    @jvp(vjp)
    def tangent(call: Call) -> list[Tensor]:
        return [frechet(call.inputs[0], call.results[0], call.tangent())]

    batching(apply)(on_value)
    return apply


def _by_blocks(A: Tensor, R: Tensor, E: Tensor) -> Tensor:
    """Return the derivative of `logm`: a block of that of a larger matrix (Higham, (3.16))."""
    n, below = A.shape[-1], cat([A * 0, A], -1)
    return _logm(cat([cat([A, E], -1), below], -2))[..., :n, n:]


def _by_roots(A: Tensor, R: Tensor, E: Tensor) -> Tensor:
    """Return the derivative of `sqrtm`, of ``R R = A``."""
    return solve_sylvester(R, R, E)


_sqrtm = _function_of("sqrtm", _by_roots)
_logm = _function_of("logm", _by_blocks)


@composed("linalg", domain="no eigenvalue on the closed negative real axis")
def sqrtm(A: Any) -> Tensor:
    """Return the principal roots of `A`, (..., n, n); ValueError for complex ones of real `A`."""
    return _sqrtm(*_numbers(A))


@composed("linalg", domain="no eigenvalue on the closed negative real axis")
def logm(A: Any) -> Tensor:
    """Return the principal logarithms of `A`; ValueError for complex ones of real `A`."""
    (A,) = _numbers(A)
    wide = dt.complex128 if A.dtype.is_complex else dt.float64  # SciPy's float32 is inexact
    return _logm(A.to(wide)).to(A.dtype)


@composed("linalg")
def expm(A: Any) -> Tensor:
    """Return the exponentials of `A`, (..., n, n)."""
    return ours.matrix_exp(*_numbers(A))


@op
def _sylvester(a: Tensor, b: Tensor, q: Tensor) -> Tensor:
    array = _library("linalg.solve_sylvester", a, b, q)
    inputs = (a, b, q)
    result: Tensor = record(
        "SylvesterBackward0", array, inputs, _sylvester_vjp, (a, b), q.dtype, keeps_output=True
    )
    return result


def _sylvester_vjp(node: Any, g: Tensor) -> tuple[Tensor, ...]:
    a, b, X = node.saved_values
    g_q = solve_sylvester(a.mH, b.mH, g)
    return -g_q @ X.mH, -X.mH @ g_q, g_q


@jvp(_sylvester_vjp)
def _sylvester_jvp(call: Call) -> list[Tensor]:
    (a, b, _), (t_a, t_b, t_q), (X,) = call.inputs, call.tangents, call.results
    parts = [t_q, None if t_a is None else -t_a @ X, None if t_b is None else -X @ t_b]
    return [_sylvester(a, b, functools.reduce(operator.add, [p for p in parts if p is not None]))]


@batching(_sylvester)
def _sylvester_batched(level: Batch, f: Any, *inputs: Tensor) -> Any:
    return level.wrap(f(*[level.full(t) for t in inputs]))


@composed("linalg", domain="`a` and `-b` have no eigenvalue in common", by="a b q")
def solve_sylvester(a: Any, b: Any, q: Any) -> Tensor:
    """Return the solution of ``a x + x b = q``, of (..., m, m), (..., n, n) and (..., m, n)."""
    tensors = _numbers(a, b, q)
    batch = broadcast_shapes(*[t.shape[:-2] for t in tensors])
    return _sylvester(*[t.expand(*batch, *t.shape[-2:]) for t in tensors])


@composed("linalg", domain="`a` has no eigenvalues of opposite sign", by="a q")
def solve_continuous_lyapunov(a: Any, q: Any) -> Tensor:
    """Return the solution of ``a x + x a.H = q``."""
    a, q = _numbers(a, q)
    return solve_sylvester(a, a.mH, q)


@op
def _unitary(a: Tensor) -> Tensor:
    """Return the factor of `a`, (..., m, n) with m >= n, that has orthonormal columns."""
    u, _, vh = ours.svd(a.detach(), False)
    result: Tensor = record(
        "PolarBackward0", (u @ vh).array, (a,), _unitary_vjp, (a,), a.dtype, keeps_output=True
    )
    return result


def _turn(a: Tensor, U: Tensor, E: Tensor, adjoint: bool) -> Tensor:
    """Return the derivative of `_unitary` in the direction `E`, or its adjoint's answer to `E`.

    With ``P = U^H a`` the derivative of ``U^H U = 1`` and ``P = P^H`` gives ``P Y + Y P = X - X^H``
    for the part ``U Y`` in the columns of `U`, where ``X = U^H E``; the rest is ``(E - U X) / P``.
    """
    P, X = U.mH @ a, U.mH @ E
    Y = solve_sylvester(P, P, X if adjoint else X - X.mH)
    turned = U @ (Y - Y.mH if adjoint else Y)
    if a.shape[-2] > a.shape[-1]:
        turned = turned + ours.solve(P, E - U @ X, left=False)
    return turned


def _unitary_vjp(node: Any, g: Tensor) -> tuple[Tensor]:
    a, U = node.saved_values
    return (_turn(a, U, g, adjoint=True),)


@jvp(_unitary_vjp)
def _unitary_jvp(call: Call) -> list[Tensor]:
    return [_turn(call.inputs[0], call.results[0], call.tangent(), adjoint=False)]


batching(_unitary)(on_value)


@composed("linalg", domain="full rank")
def polar(a: Any, side: str = "right") -> tuple[Tensor, Tensor]:
    """Return ``u`` of orthonormal columns or rows and positive ``p`` with ``a = u p``.

    Where `side` is "left", ``a = p u``. `a` is (..., m, n). ValueError for another `side`.
    """
    if side not in ("right", "left"):
        raise ValueError(f"side is 'right' or 'left', got {side!r}")
    (a,) = _numbers(a)
    u = _unitary(a) if a.shape[-2] >= a.shape[-1] else _unitary(a.mH).mH
    p = u.mH @ a if side == "right" else a @ u.mH
    return u, (p + p.mH) / 2


BASIS = "no basis of a space is unique, so that what depends on it has no derivative; {}"
null_space = refused("linalg.null_space", BASIS.format("1 - pinv(A) @ A projects on that space"))
orth = refused("linalg.orth", BASIS.format("A @ pinv(A) projects on that space"))
schur = refused(
    "linalg.schur", "its vectors are not unique; write eigh(a), or a function such as sqrtm(a)"
)

__getattr__ = others("linalg", globals())
