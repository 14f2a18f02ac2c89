"""Inverses and solutions of linear systems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.devices import linalg
from lucid_gpu.devices.lapack import Triangle
from lucid_gpu.ops.arguments import require_one_device, takes_out
from lucid_gpu.ops.linalg.matrices import (
    adjoint,
    complain,
    diagonal_of,
    identity_like,
    info_of,
    on_arrays,
    require_matrices,
    require_same_type,
    require_square,
)
from lucid_gpu.ops.linalg.quotients import by_triangle, solved, solved_vectors
from lucid_gpu.ops.memory_formats import columns
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import keeping, record
from lucid_gpu.ops.shape import owned
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor

SINGULAR = (
    "The diagonal element {} is zero, the inversion could not be completed because the input "
    "matrix is singular."
)
UNSOLVED = "The solver failed because the input matrix is singular."


@result_of("linalg_inv_ex")
class Inverse(NamedTuple):
    """What `inv_ex` returns."""

    inverse: Tensor
    info: Tensor


@result_of("linalg_solve_ex")
class Solution(NamedTuple):
    """What `solve_ex` returns."""

    result: Tensor
    info: Tensor


@op(autocast={"cpu": "float32"})
def inv(A: Tensor) -> Tensor:
    """The inverse of each matrix.

    With ``Y`` the inverse, ``dY = -Y dA Y``, so that the gradient of ``A`` is ``-Y^H g Y^H``.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)

    Raises
    ------
    LinAlgError
        For a singular matrix.
    """
    return inverse_of(A, "linalg.inv").inverse


@op(autocast={"cpu": "float32"})
@takes_out
def inverse(input: Tensor) -> Tensor:
    """Alias of `inv`: inverses of square matrices, (..., n, n)."""
    return inv(input)


@op(autocast={"cpu": "float32"})
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Inverse:
    """As `inv`, but where a matrix is singular its inverse is NaN and ``info`` the zero pivot."""
    return inverse_of(A, "linalg.inv_ex", check_errors)


@op
@columns
def inverse_of(A: Tensor, name: str, check: bool = True) -> Inverse:
    """Inverses and LAPACK's ``info``."""
    require_square(name, A)
    array, numbers = linalg.inverted(A.device, A.array)
    if check:
        complain(name, numbers, A.shape[:-2], SINGULAR)
    return Inverse(recorded_inverse(array, A), info_of(numbers, A))


def recorded_inverse(array: Any, A: Tensor) -> Tensor:
    """The inverse of ``A``, computed, with its gradient."""
    inverted: Tensor = record(
        "LinalgInvExBackward0", array, (A,), _inverse_vjp, dtype=A.dtype, keeps_output=True
    )
    return inverted


def _inverse_vjp(node: Any, g: Tensor) -> Any:
    (y,) = node.saved_values
    return (on_arrays(_pulled_back, y, g),)


batching(inverse_of)(on_value)


def _pulled_back(y: Any, g: Any) -> Any:
    turned = adjoint(y)
    return -(turned @ g @ turned)


@op(autocast={"cpu": "float32"})
@owned
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The solution ``X`` of ``A X = B``, or of ``X A = B`` where ``left`` is False.

    The gradient of ``B`` solves ``A^H g_B = g``, and that of ``A`` is ``-g_B X^H``.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)
    B : Tensor, shape (..., n, k) or (..., n)
        Vectors where B has one dimension, or the shape of A without the last.

    Raises
    ------
    LinAlgError
        For a singular matrix.
    RuntimeError
        For shapes or types that do not fit each other.
    TypeError
        For anything but a tensor.
    """
    return _solve(A, B, left, "linalg.solve", True).result


@op
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Solution:
    """As `solve`, but where a matrix is singular the result is NaN and ``info`` the zero pivot."""
    return _solve(A, B, left, "linalg.solve_ex", check_errors)


@columns
def _solve(A: Tensor, B: Tensor, left: bool, name: str, check: bool) -> Solution:
    require_square(name, A)
    _same_type(name, A, B)
    vectors = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    if not vectors or A.shape[-1] != B.shape[-1]:
        _fit(name, A, B.unsqueeze(-1) if vectors else B, left or vectors)
    if vectors:
        X, numbers = solved_vectors(A, B)
    elif left:
        X, numbers = solved(A, B)
    else:
        X, numbers = solved(A.mT, B.mT)
        X = X.mT
    if check:
        complain(f"torch.{name}", numbers, A.shape[:-2], UNSOLVED)
    return Solution(X, info_of(numbers, A))


def _same_type(name: str, A: Tensor, B: Tensor) -> None:
    if not isinstance(B, Tensor):
        raise TypeError(f"{name}: argument 'B' must be Tensor, not {type(B).__name__}")
    require_same_type(name, A, B)
    require_one_device(name, A, B)


def _fit(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    if A.shape[-1] != B.shape[-2 if left else -1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and "
            f"{B.shape[-2]}x{B.shape[-1]})"
        )


@op
@columns
@keeping("input", output=True)
def solve_triangular(
    input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """As `solve` for triangular matrices, of which the other triangle is not read.

    Parameters
    ----------
    input : Tensor, shape (..., n, n)
    B : Tensor, shape (..., n, k), or (..., k, n) where ``left`` is False
    unitriangular : bool
        Whether the diagonal counts as ones and is not read.

    Raises
    ------
    RuntimeError
        For shapes or types that do not fit each other.
    TypeError
        For a ``B`` that is not a tensor.
    """
    name = "linalg.solve_triangular"
    require_square(name, input)
    if isinstance(B, Tensor) and B.ndim < 2:
        raise RuntimeError(
            f"{name}: The input tensor B must have at least 2 dimensions. Got shape {list(B.shape)}"
        )
    _same_type(name, input, B)
    _fit(name, input, B, left)
    if left:
        return by_triangle(input, B, Triangle(upper, unitriangular))
    return by_triangle(input.mT, B.mT, Triangle(not upper, unitriangular)).mT


@result_of("triangular_solve")
class Triangular(NamedTuple):
    """What `triangular_solve` returns."""

    solution: Tensor
    cloned_coefficient: Tensor


@op
@takes_out
@columns
def triangular_solve(
    input: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Triangular:
    """`solve_triangular` under its old name, with ``B``, of shape (..., n, k), first."""
    kept = Triangle(bool(upper) != bool(transpose), unitriangular)
    return Triangular(by_triangle(A.mT if transpose else A, input, kept), A.clone())


@op(autocast={"cpu": "float32"})
def tensorinv(input: Tensor, ind: int = 2) -> Tensor:
    """The inverse of `tensordot` over the first ``ind`` dimensions.

    Parameters
    ----------
    input : Tensor
        ``prod(shape[:ind]) == prod(shape[ind:])``.

    Raises
    ------
    RuntimeError
        For another shape, and an ``ind`` that is not above 0.
    """
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    shape = tuple(input.shape)
    rows, columns = math.prod(shape[:ind]), math.prod(shape[ind:])
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {columns} != {rows}"
        )
    inverted = inverse_of(input.reshape(rows, rows), "linalg.tensorinv").inverse
    return inverted.reshape((*shape[ind:], *shape[:ind]))


@op(autocast={"cpu": "float32"})
def tensorsolve(input: Tensor, other: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The solution ``X`` of ``tensordot(input, X, X.ndim) == other``.

    Its shape is ``input.shape[other.ndim:]``.

    Parameters
    ----------
    dims : sequence of int, optional
        Dimensions of ``input`` that are moved to its end first.
    """
    if dims is not None:
        input = input.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    shape = tuple(input.shape)[other.ndim :]
    n = math.prod(shape)
    X = solve(input.reshape(other.numel(), n), other.reshape(-1))
    return X.reshape(shape)


@op(autocast={"cpu": "float32"})
@takes_out
@keeping("input", "L", output=True)
@columns
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """The solution of ``A X = B`` where ``L`` is the Cholesky factor of ``A``.

    Parameters
    ----------
    input : Tensor, shape (..., n, k)
        ``B``.
    L : Tensor, shape (..., n, n)
        Lower triangular with ``A = L L^H``, or with ``upper`` its adjoint.

    Raises
    ------
    RuntimeError
        For fewer than two dimensions, and shapes or types that do not fit each other.
    TypeError
        For anything but a tensor.
    """
    if input.ndim < 2 or L.ndim < 2:
        role, operand = ("b", input) if input.ndim < 2 else ("u", L)
        raise RuntimeError(
            f"{role} should have at least 2 dimensions, but has {operand.ndim} dimensions instead"
        )
    _same_type("cholesky_solve", L, input)
    if not L.shape[-1] == L.shape[-2] == input.shape[-2]:
        raise RuntimeError(
            "Incompatible matrix sizes for cholesky_solve: each A matrix is "
            f"{L.shape[-2]} by {L.shape[-1]} but each b matrix is {input.shape[-2]} by "
            f"{input.shape[-1]}"
        )
    kept = Triangle(upper)
    return by_triangle(L, by_triangle(L, input, kept, upper), kept, not upper)


@op(autocast={"cpu": "float32"})
@takes_out
@columns
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix whose Cholesky factor is ``L``, shape (..., n, n).

    RuntimeError for anything but square matrices; on the CPU LinAlgError for a zero on a diagonal;
    NotImplementedError for 16-bit floats.
    """
    require_matrices("cholesky_inverse", L)
    require_square("cholesky_inverse", L)
    if L.device.type == "cpu" and L._wrapper is None:  # a GPU would wait
        zeros = diagonal_of(L.detach()) == 0
        if zeros.any():
            rows = zeros.reshape(-1, L.shape[-1]).tolist()
            numbers = [row.index(True) + 1 if any(row) else 0 for row in rows]
            complain("cholesky_inverse", numbers, L.shape[:-2], SINGULAR)
    return cholesky_solve(identity_like(L, L.shape[-1]), L, upper)


METHODS = (inverse, triangular_solve, cholesky_solve, cholesky_inverse)
FUNCTIONS = METHODS
