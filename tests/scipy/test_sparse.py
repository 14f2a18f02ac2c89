"""`lucid_gpu.scipy.sparse` with sparse operands: gradients by the listed values, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.scipy import sparse
from lucid_gpu.scipy.sparse import linalg

scipy = pytest.importorskip("scipy.sparse", reason="lucid_gpu.scipy computes by SciPy")

ROWS, COLUMNS = [0, 0, 1, 2, 2, 3, 3], [0, 2, 1, 0, 2, 1, 3]


def values() -> Any:
    diagonal = lucid_gpu.tensor([r == c for r, c in zip(ROWS, COLUMNS, strict=True)])
    noise = lucid_gpu.randn(7, dtype=lucid_gpu.float64, generator=lucid_gpu.Generator())
    return (3.0 * diagonal + 0.3 * noise).requires_grad_()


def vector() -> Any:
    return lucid_gpu.tensor([0.5, -1.0, 2.0, 0.25], dtype=lucid_gpu.float64).requires_grad_()


def matrix(v: Any) -> Any:
    return sparse.coo_array((v, (ROWS, COLUMNS)), shape=(4, 4))


def symmetric(v: Any) -> Any:
    places = (ROWS + COLUMNS, COLUMNS + ROWS)
    return sparse.coo_array((lucid_gpu.cat([v, v]), places), shape=(4, 4))


def of_library(v: Any) -> Any:
    return scipy.coo_array((v.detach().numpy(), (ROWS, COLUMNS)), shape=(4, 4))


SOLVERS: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda A, b: A @ b,
    "spsolve": linalg.spsolve,
    "gmres": lambda A, b: linalg.gmres(A, b, rtol=1e-13)[0],
}


@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_by_values_and_vector(name: str) -> None:
    v, b = values(), vector()
    function = SOLVERS[name]
    expected = function(of_library(v), b.detach().numpy())
    np.testing.assert_allclose(function(matrix(v), b).detach(), expected, rtol=1e-9)
    assert gradcheck(lambda v, b: function(matrix(v), b), (v, b))
    assert gradgradcheck(lambda v, b: function(matrix(v), b), (v, b))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_a_librarys_matrix_beside_a_tensor(form: str) -> None:
    A, b = of_library(values()).asformat(form), vector()
    assert gradcheck(lambda b: linalg.spsolve(A, b), (b,), check_forward_ad=True)
    expected = linalg.spsolve(A.tocsc(), b.detach().numpy())
    np.testing.assert_allclose(linalg.spsolve(A, b).detach(), expected)


def test_exponentials_take_several_steps() -> None:
    """The 1-norm of the matrix is above 3."""
    v, b = values(), vector()
    expected = linalg.expm_multiply(of_library(v), b.detach().numpy())
    np.testing.assert_allclose(linalg.expm_multiply(matrix(v), b).detach(), expected, rtol=1e-9)
    assert gradcheck(lambda v: linalg.expm_multiply(matrix(v), b), (v,))


def test_symmetric_matrices() -> None:
    v, b = values(), vector()
    assert gradcheck(lambda v, b: linalg.cg(symmetric(v), b, rtol=1e-13)[0], (v, b))
    assert gradcheck(lambda v: linalg.eigsh(symmetric(v), 2)[0], (v,))
    w, _ = linalg.eigsh(symmetric(v), 2, which="SA")
    full = np.linalg.eigvalsh(symmetric(v).detach().to_dense().numpy())
    np.testing.assert_allclose(w.detach(), full[:2])


def test_vectors_of_eigsh_have_no_derivative() -> None:
    pair = linalg.eigsh(symmetric(values()), 2)
    with pytest.raises(RuntimeError, match="eigsh has no derivative by its vectors"):
        pair[1].sum().backward()


def test_complex_systems() -> None:
    z = lucid_gpu.complex(values(), values().detach()).detach().requires_grad_()
    b = (vector() + 1j).detach().requires_grad_()
    assert gradcheck(lambda z, b: linalg.spsolve(matrix(z), b), (z, b))


def test_what_is_refused() -> None:
    A = matrix(values())
    with pytest.raises(ValueError, match=r"spsolve takes a square matrix .* \(4, 4\) and \(3,\)"):
        linalg.spsolve(A, lucid_gpu.ones(3))
    with pytest.raises(RuntimeError, match="gmres found no solution, .* info is 1"):
        linalg.gmres(A, vector(), maxiter=1, restart=1, rtol=1e-13)
    with pytest.raises(NotImplementedError, match="no forward mode and no vmap"):
        lucid_gpu.func.vmap(lambda v: matrix(v) @ vector())(lucid_gpu.ones(2, 7))
