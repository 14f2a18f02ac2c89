"""The functions that are called in NumPy's library, beside NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid_gpu.devices import blas, lapack
from lucid_gpu.devices.lapack import Triangle

N = 70  # more than one block
LOWER, UPPER = Triangle(upper=False), Triangle(upper=True)

pytestmark = pytest.mark.skipif(
    blas.library is None, reason="NumPy was not built with the OpenBLAS of its wheels"
)


def some(kind: str, *shape: int) -> Any:
    rng = np.random.default_rng(len(shape))
    numbers = rng.standard_normal((*shape, 2)).view(complex)[..., 0]
    return (numbers if kind in "FD" else numbers.real).astype(kind)


def adjoint(x: Any) -> Any:
    return x.swapaxes(-1, -2).conj()


def layouts(x: Any) -> list[Any]:
    """The same matrices by rows, by columns, and inside larger ones."""
    wide = np.zeros((*x.shape[:-2], N + 3, N + 5), x.dtype)
    wide[..., 2 : N + 2, 1 : N + 1] = x
    by_columns = np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    every_other = np.repeat(x, 2, -1)[..., ::2]
    return [x, by_columns, wide[..., 2 : N + 2, 1 : N + 1], every_other]


@pytest.mark.parametrize("kind", "fdFD")
@pytest.mark.parametrize("batch", [(), (2, 2)])
def test_factors_solve_and_invert(kind: str, batch: tuple[int, ...]) -> None:
    near = {"rtol": 0, "atol": 3e-3 if kind in "fF" else 1e-10}
    B, unit = some(kind, *batch, N, 3), np.broadcast_to(np.eye(N, dtype=kind), (*batch, N, N))
    for A in layouts(some(kind, *batch, N, N)):
        assert lapack.usable(A)
        factors, pivots, numbers = lapack.factored(A)
        assert not any(numbers)
        for some_of_it in (B, B[..., 1:2]):
            X, Z = (lapack.solved(factors, pivots, some_of_it, turned) for turned in (False, True))
            np.testing.assert_allclose(A @ X, some_of_it, **near)
            np.testing.assert_allclose(adjoint(A) @ Z, some_of_it, **near)
        np.testing.assert_allclose(A @ lapack.inverted(factors, pivots), unit, **near)
        found = lapack.signed_logarithms(factors, pivots)
        for mine, theirs in zip(found, np.linalg.slogdet(A), strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-3)
        found = lapack.determinants(*lapack.factored(A / 8)[:2])
        np.testing.assert_allclose(found, np.linalg.det(A / 8), rtol=1e-2)


@pytest.mark.parametrize("kind", "fdFD")
@pytest.mark.parametrize("kept", [LOWER, UPPER, Triangle(False, True), Triangle(True, True)])
def test_triangles(kind: str, kept: Triangle) -> None:
    near = {"rtol": 0, "atol": 1e-3 if kind in "fF" else 1e-10}
    A = some(kind, N, N) / 20 + 2 * np.eye(N, dtype=kind)
    whole = np.triu(A) if kept.upper else np.tril(A)
    if kept.unit:
        np.fill_diagonal(whole, 1)
    B = some(kind, N, 3)
    for given in layouts(A):
        for some_of_it in (B, B[:, 1:2]):
            X, Z = (lapack.divided(given, some_of_it, kept, turned) for turned in (False, True))
            np.testing.assert_allclose(whole @ X, some_of_it, **near)
            np.testing.assert_allclose(adjoint(whole) @ Z, some_of_it, **near)
        right = np.ascontiguousarray(B.T)
        lapack.divide(given, right, kept, right=True)
        np.testing.assert_allclose(right @ whole, B.T, **near)


def test_which_triangle_holds_a_matrix() -> None:
    A = some("d", N, N)
    almost, holed = np.tril(A), np.tril(A)
    almost[N - 2, N - 1] = np.nan
    holed[3, 3] = 0
    cases = [(A, None), (np.tril(A), LOWER), (np.triu(A), UPPER), (almost, None), (holed, None)]
    for matrix, found in [*cases, (np.eye(N), LOWER)]:
        for given in layouts(matrix):
            assert lapack.triangle_of(given) == found


def test_singular_matrices_are_named() -> None:
    A = np.stack([np.ones((N, N)), np.eye(N), np.zeros((N, N))])
    factors, pivots, numbers = lapack.factored(A)
    assert numbers == [2, 0, 1]
    inverse = lapack.inverted(factors, pivots)
    assert np.isnan(inverse[[0, 2]]).all() and (inverse[1] == np.eye(N)).all()
    signs, sizes = lapack.signed_logarithms(factors, pivots)
    assert signs.tolist() == [0, 1, 0] and sizes.tolist() == [-np.inf, 0, -np.inf]


def test_small_matrices_and_other_types_are_left_to_numpy() -> None:
    for array in (np.eye(8), np.eye(N, dtype="e"), np.eye(N, dtype="g"), np.zeros((0, N, N))):
        assert not lapack.usable(array)
