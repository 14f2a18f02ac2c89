"""`lucid_gpu.scipy.linalg` at the edges: triangles, batches, complex numbers, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.scipy import linalg
from tests.ops.samples import draw, t

scipy = pytest.importorskip("scipy.linalg", reason="lucid_gpu.scipy computes by SciPy")


def drawn(*shape: int, of: str = "square", again: int = 0) -> Any:
    return lucid_gpu.tensor(draw("test_linalg", 0, t(*shape, of=of), again)).requires_grad_()


def complex_square(*shape: int) -> Any:
    return lucid_gpu.complex(drawn(*shape), drawn(*shape, of="normal")).detach().requires_grad_()


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", ["cholesky", "eigvalsh"])
def test_the_other_triangle_is_not_read(name: str, lower: bool) -> None:
    a = drawn(3, 3, of="definite")
    other = np.triu(np.full((3, 3), np.nan), 1)
    spoilt = (a.detach().numpy() + (other if lower else other.T)).copy()
    given = lucid_gpu.tensor(spoilt).requires_grad_()
    result = getattr(linalg, name)(given, lower=lower)
    np.testing.assert_allclose(result.detach(), getattr(linalg, name)(a, lower=lower).detach())
    result.sum().backward()
    assert given.grad is not None
    assert np.isfinite(given.grad.numpy()).all()
    assert (given.grad.numpy()[np.isnan(spoilt)] == 0).all()


@pytest.mark.parametrize("name", ["solve", "solve_triangular", "cho_solve", "lu_solve"])
def test_one_vector_for_a_batch_of_matrices(name: str) -> None:
    a, b = drawn(2, 3, 3), drawn(3, of="normal")
    factor = {"cho_solve": lambda a: (a, True), "lu_solve": linalg.lu_factor}.get(name)
    function = getattr(linalg, name)
    result = function(factor(a) if factor else a, b)
    assert result.shape == (2, 3)
    one = function(factor(a[1]) if factor else a[1], b)
    np.testing.assert_allclose(result[1].detach(), one.detach(), rtol=1e-12)


@pytest.mark.parametrize("name", ["sqrtm", "logm", "polar"])
def test_complex_matrices(name: str) -> None:
    a = (complex_square(2, 2) + 3 * lucid_gpu.eye(2)).detach().requires_grad_()
    function = getattr(linalg, name)
    got, expected = function(a), getattr(scipy, name)(a.detach().numpy())
    for x, y in zip(*[r if name == "polar" else (r,) for r in (got, expected)], strict=True):
        np.testing.assert_allclose(x.detach(), y, rtol=1e-9)
    assert gradcheck(function, (a,), check_forward_ad=True, fast_mode=True)


def test_complex_equations() -> None:
    given = [complex_square(2, 2), complex_square(3, 3)]
    given.append(complex_square(3, 3)[:2].detach().requires_grad_())
    assert gradcheck(linalg.solve_sylvester, given, check_forward_ad=True)


def test_a_rotation_has_a_polar_derivative() -> None:
    """Its singular values are equal, where those of `svd` have none."""
    turned = lucid_gpu.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=lucid_gpu.float64).requires_grad_()
    assert gradcheck(linalg.polar, (turned,))


@pytest.mark.parametrize("name", ["sqrtm", "logm"])
def test_complex_results_of_real_matrices_are_refused(name: str) -> None:
    a = lucid_gpu.tensor([[-1.0, 0.0], [0.0, -4.0]])
    with pytest.raises(ValueError, match=r"of this real matrix is complex: give it A \+ 0j"):
        getattr(linalg, name)(a)
    np.testing.assert_allclose(linalg.sqrtm(a + 0j), [[1j, 0], [0, 2j]])


def test_matrices_that_are_not_square_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"square matrices, but they are 2 by 3 matrices"):
        linalg.cholesky(lucid_gpu.ones(2, 3))


def test_whole_numbers_and_none() -> None:
    c = lucid_gpu.tensor([1, 2, 3])
    np.testing.assert_array_equal(linalg.toeplitz(c), scipy.toeplitz([1, 2, 3]))
    np.testing.assert_array_equal(linalg.hankel(c), scipy.hankel([1, 2, 3]))
    assert linalg.sqrtm(lucid_gpu.empty(0, 3, 3)).shape == (0, 3, 3)
    assert linalg.solve_sylvester(*[lucid_gpu.empty(0, 2, 2)] * 3).shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda a: linalg.solve_triangular(a, a, 3), "trans is 0, 1, 2, 'N', 'T' or 'C', got 3"),
        (lambda a: linalg.solve(a, a, assume_a="round"), "assume_a is one of"),
        (lambda a: linalg.qr(a, "raw"), "mode is 'full', 'economic' or 'r', got 'raw'"),
        (lambda a: linalg.eigh(a, type=4), "type is 1, 2 or 3, got 4"),
        (lambda a: linalg.polar(a, "up"), "side is 'right' or 'left', got 'up'"),
    ],
)
def test_other_words_are_refused(call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(drawn(3, 3))


def test_settings_of_memory_change_nothing() -> None:
    a = lucid_gpu.eye(3, dtype=lucid_gpu.float64) * 2
    plain = linalg.cholesky(a, lower=True)
    assert linalg.cholesky(a, lower=True, check_finite=False, overwrite_a=True).equal(plain)
    with pytest.raises(TypeError, match="overwrite_q"):
        linalg.cholesky(a, overwrite_q=True)
