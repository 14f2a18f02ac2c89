"""`scipy.sparse.linalg` with derivatives by the values of the matrix and by vectors.

A matrix is a tensor of `lucid_gpu.sparse`, a sparse one of SciPy or CuPy, or a dense one. No other
element than the listed ones has a gradient, and none is computed.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from lucid_gpu.devices import device_of, scipy
from lucid_gpu.numpy.operands import alike, as_tensor, inexact
from lucid_gpu.ops.linalg.matrices import absent
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import stack
from lucid_gpu.scipy.rows import composed, computed, others
from lucid_gpu.sparse import SparseTensor
from lucid_gpu.sparse.gradients import values_of
from lucid_gpu.sparse.pattern import Pattern
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor

__all__ = ["cg", "eigsh", "expm_multiply", "gmres", "spsolve"]

Places = Pattern | None  # of the values of a sparse matrix; None where they are a dense one


def _operand(A: Any, like: Tensor | None = None) -> tuple[Tensor, Places]:
    """Return the values of a matrix, and their places."""
    if isinstance(A, SparseTensor):
        return values_of(A), A.pattern
    if not hasattr(A, "tocoo"):
        return inexact(as_tensor(A, like)), None
    coo = A.tocoo()  # a library's sparse matrix
    places = stack([as_tensor(part, like).long() for part in (coo.row, coo.col)])
    return inexact(as_tensor(coo.data, like)), Pattern(places, coo.shape, False)


def _operands(A: Any, b: Any) -> tuple[Tensor, Places, Tensor]:
    """Return the values of a matrix, their places, and `b` of their type."""
    values, pattern = _operand(A, b if isinstance(b, Tensor) else None)
    values, b = alike(values, inexact(as_tensor(b, values)))
    return values, pattern, b


def _conj(x: Tensor) -> Tensor:
    return x.conj_physical() if x.dtype.is_complex else x


def _times(values: Tensor, x: Tensor, pattern: Places, adjoint: bool = False) -> Tensor:
    """Return the product of a matrix, or of its adjoint, and a vector or matrix."""
    if pattern is None:
        return (values.mH if adjoint else values) @ x
    rows, columns = pattern.rows
    rows, columns = (columns, rows) if adjoint else (rows, columns)
    values = (_conj(values) if adjoint else values).reshape(-1, *(1,) * (x.ndim - 1))
    zeros = x.new_zeros((pattern.size[1 if adjoint else 0], *x.shape[1:]))
    return zeros.index_add(0, rows, values * x.index_select(0, columns))


def _outer(y: Tensor, x: Tensor, pattern: Places) -> Tensor:
    """Return ``y x^H``, of vectors or summed over columns, at the places of the values."""
    y, x = (t.unsqueeze(-1) if t.ndim == 1 else t for t in (y, _conj(x)))
    if pattern is None:
        return y @ x.mT
    rows, columns = pattern.rows
    return (y.index_select(0, rows) * x.index_select(0, columns)).sum(-1)


def _matrix(values: Any, pattern: Places, adjoint: bool = False) -> Any:
    """Return the library's matrix of compressed rows of an array of values."""
    library = scipy.module(device_of(values).type, "sparse")
    if pattern is None:
        made = library.csr_matrix(values)
    else:
        places = tuple([part.array for part in pattern.rows])
        made = library.coo_matrix((values, places), shape=pattern.size).tocsr()
    return made.conj().T.tocsr() if adjoint else made


# --- linear systems -------------------------------------------------------------------------------

Solver = Callable[[Any, Any], Any]


@op
def _solved(
    values: Tensor, b: Tensor, pattern: Places, adjoint: bool, solver: Solver, by: str
) -> Tensor:
    """Return the solution of ``A x = b``, or of ``A^H x = b``."""

    def function(values: Any, b: Any) -> Any:
        return solver(_matrix(values, pattern, adjoint), b)

    array = computed(f"sparse.linalg.{by}", function, values, b)
    result: Tensor = record(
        f"{by.capitalize()}Backward0", array, (values, b), _solved_vjp, (values,), b.dtype,
        keeps_output=True, pattern=pattern, adjoint=adjoint, solver=solver, by=by,
    )  # fmt: skip
    return result


def _solved_vjp(node: Any, g: Tensor) -> tuple[Tensor | None, Tensor]:
    values, x = node.saved_values
    h = _solved(values, g, node.pattern, not node.adjoint, node.solver, node.by)
    if not node.needs_input_grad[0]:
        return None, h
    left, right = (x, h) if node.adjoint else (h, x)
    return -_outer(left, right, node.pattern), h


@jvp(_solved_vjp)
def _solved_jvp(call: Call) -> list[Tensor]:
    (t_values, t_b), (x,), said = call.tangents, call.results, call.attributes
    right = t_b
    if t_values is not None:
        moved = _times(t_values, x, said["pattern"], said["adjoint"])
        right = -moved if right is None else right - moved
    return [_solved(call.inputs[0], right, *[said[n] for n in SETTINGS])]


SETTINGS = ("pattern", "adjoint", "solver", "by")


@batching(_solved)
def _solved_batched(level: Batch, f: Any, values: Tensor, b: Tensor, *settings: Any) -> Any:
    pairs = zip(level.full(values), level.full(b), strict=True)
    return level.wrap(stack([f(*pair, *settings) for pair in pairs]))


def _system(name: str, A: Any, b: Any, solver: Solver) -> Tensor:
    values, pattern, b = _operands(A, b)
    size = tuple(values.shape if pattern is None else pattern.size)
    if len(size) != 2 or size[0] != size[1] or b.ndim not in (1, 2) or b.shape[0] != size[0]:
        raise ValueError(
            f"{name} takes a square matrix and a vector or matrix of as many rows, got shapes "
            f"{size} and {tuple(b.shape)}"
        )
    return _solved(values, b, pattern, False, solver, name)


def _direct(matrix: Any, b: Any) -> Any:
    return scipy.function(device_of(b).type, "sparse.linalg.spsolve")(matrix, b)


@composed("sparse.linalg", domain="invertible `A`", by="A b")
def spsolve(A: Any, b: Any) -> Tensor:
    """Return the solution of ``A x = b``, of shapes (n, n) and (n,) or (n, k).

    ValueError for other shapes.
    """
    return _system("spsolve", A, b, _direct)


def _iterated(name: str, settings: dict[str, Any], matrix: Any, b: Any) -> Any:
    function = scipy.function(device_of(b).type, f"sparse.linalg.{name}")
    if "rtol" not in inspect.signature(function).parameters:  # before SciPy 1.12
        settings = {"tol" if key == "rtol" else key: value for key, value in settings.items()}
    x, info = function(matrix, b, **settings)
    if info:
        raise RuntimeError(
            f"{name} found no solution, whose derivative is asked for: info is {info}; give more "
            "maxiter, a larger rtol or another solver"
        )
    return x.reshape(b.shape)


CONVERGED = "no convergence: there is an error, for what is no solution has not its derivative"


@composed("sparse.linalg", domain="positive definite `A`", by="A b", refused=CONVERGED)
def cg(
    A: Any,
    b: Any,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Tensor, int]:
    """Return the solution of ``A x = b`` by conjugate gradients, and 0.

    Parameters
    ----------
    A, b : of shapes (n, n) and (n,)
    rtol, atol : float
        Where it ends, as do the systems of its derivatives: ``|b - A x| <= max(rtol |b|, atol)``.
    maxiter : int, optional
    M : optional
        A library's approximate inverse, without a derivative.

    Raises
    ------
    RuntimeError
        Where it does not end in time.
    """
    settings = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "M": M}
    return _system("cg", A, b, functools.partial(_iterated, "cg", settings)), 0


@composed("sparse.linalg", domain="invertible `A`", by="A b", refused=CONVERGED)
def gmres(
    A: Any,
    b: Any,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
) -> tuple[Tensor, int]:
    """Return the solution of ``A x = b`` by generalized minimal residuals, and 0: see `cg`.

    `restart` is how many steps are kept.
    """
    settings = {"rtol": rtol, "atol": atol, "restart": restart, "maxiter": maxiter}
    return _system("gmres", A, b, functools.partial(_iterated, "gmres", settings)), 0


# --- eigenvalues, exponentials --------------------------------------------------------------------


@op
def _eigenpairs(values: Tensor, pattern: Places, k: int, which: str) -> tuple[Tensor, Tensor]:
    def function(values: Any) -> Any:
        library = scipy.function(device_of(values).type, "sparse.linalg.eigsh")
        w, v = library(_matrix(values, pattern), k, which=which)
        order = w.argsort()
        return w[order], v[:, order]

    arrays = computed("sparse.linalg.eigsh", function, values)
    pair: tuple[Tensor, Tensor] = record(
        "EigshBackward0", arrays, (values,), _eigenpairs_vjp, keeps_output=True, pattern=pattern
    )
    return pair


def _eigenpairs_vjp(node: Any, g_w: Tensor, g_v: Tensor) -> tuple[Tensor]:
    if not absent(g_v):
        raise RuntimeError(
            "scipy.sparse.linalg.eigsh has no derivative by its vectors, which a second one needs; "
            "write lucid_gpu.scipy.linalg.eigh of the dense matrix"
        )
    _, v = node.saved_values
    return (_outer(v * g_w, v, node.pattern),)


@composed(
    "sparse.linalg",
    domain="Hermitian `A`, distinct eigenvalues",
    refused="gradients through vectors, and second ones: `linalg.eigh` has them",
)
def eigsh(A: Any, k: int = 6, which: str = "LM", return_eigenvectors: bool = True) -> Any:
    """Return `k` eigenvalues of a Hermitian matrix, ascending, and vectors, without a derivative.

    Parameters
    ----------
    A : of shape (n, n)
        Both of its triangles count, each half.
    which : {"LM", "SM", "LA", "SA"}
        The largest or smallest, by size ("M") or by value ("A").
    return_eigenvectors : bool
        Whether vectors are returned too.
    """
    pair = _eigenpairs(*_operand(A), k, which)
    return pair if return_eigenvectors else pair[0]


TERMS = 20  # of the series: 1 / 20! is below a rounding


@composed("sparse.linalg", by="A B")
def expm_multiply(A: Any, B: Any) -> Tensor:
    """Return ``expm(A) @ B`` of (n, n) and (n,) or (n, k), by products with `A` only.

    The power series of steps so short that the 1-norm of `A` is at most 1 in each.
    """
    values, pattern, B = _operands(A, B)
    ones = values.new_ones(len(B)).real if values.dtype.is_complex else values.new_ones(len(B))
    columns = _times(values.detach().abs(), ones, pattern, adjoint=True)
    steps = max(1, math.ceil(float(columns.max())))
    for _ in range(steps):
        term = B
        for n in range(1, TERMS + 1):
            term = _times(values, term, pattern) / (n * steps)
            B = B + term
    return B


__getattr__ = others("sparse.linalg", globals())
