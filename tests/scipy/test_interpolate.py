"""Functions through data: by points and knots, against SciPy's in every setting, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.scipy import interpolate

scipy = pytest.importorskip("scipy.interpolate", reason="lucid_gpu.scipy computes by SciPy")

X = np.array([0.0, 0.5, 1.5, 2.0, 3.0])
Y = np.array([1.0, -0.5, 0.3, 2.0, 1.0])
AT = np.array([-0.4, 0.3, 1.7, 2.9, 3.3])


def leaf(values: Any) -> Any:
    return lucid_gpu.tensor(values, requires_grad=True)


@pytest.mark.parametrize(
    "name", ["make_interp_spline", "CubicSpline", "PchipInterpolator", "interp1d"]
)
def test_derivatives_by_values_points_and_where(name: str) -> None:
    def of(x: Any, y: Any, at: Any) -> Any:
        return getattr(interpolate, name)(x, y)(at)

    assert gradcheck(of, (leaf(X), leaf(Y), leaf(AT[1:4])), check_forward_ad=True)


def test_points_of_a_function_through_plain_data() -> None:
    spline, at = interpolate.CubicSpline(X, Y), leaf(AT)
    spline(at).sum().backward()
    np.testing.assert_allclose(at.grad, scipy.CubicSpline(X, Y)(AT, 1), rtol=1e-9)
    np.testing.assert_array_equal(spline.c, scipy.CubicSpline(X, Y).c)


@pytest.mark.parametrize("bc", ["not-a-knot", "natural", "clamped", "periodic"])
@pytest.mark.parametrize("extrapolate", [True, False, "periodic", None])
def test_ends_and_what_lies_beyond(bc: str, extrapolate: Any) -> None:
    given = {"bc_type": bc, "extrapolate": extrapolate}
    for nu in range(4):
        found = interpolate.CubicSpline(X, leaf(Y), **given)(AT, nu)
        wanted = scipy.CubicSpline(X, Y, **given)(AT, nu)
        np.testing.assert_allclose(found.detach(), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda y: interpolate.CubicSpline(X, y, bc_type="free"), ValueError, "one of not-a-knot"),
        (lambda y: interpolate.CubicSpline(X, y).c, AttributeError, "has no attribute 'c'"),
        (lambda y: interpolate.interp1d(X, y)(4.0), ValueError, "lies outside of x"),
        (lambda y: interpolate.interp1d(X, y, "round"), NotImplementedError, "kind must be"),
        (
            lambda y: interpolate.RegularGridInterpolator((X,), y, "pchip"),
            ValueError,
            "method must be linear or nearest",
        ),
        (
            lambda y: interpolate.RegularGridInterpolator((X,), y)([[4.0]]),
            ValueError,
            "outside of the grid",
        ),
        (lambda y: interpolate.PchipInterpolator(X, y * 1j), TypeError, "complex numbers"),
    ],
)
def test_refusals_say_what_to_write(call: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        call(leaf(Y))


@pytest.mark.parametrize(
    "name", ["CubicSpline", "make_interp_spline", "interp1d", "PchipInterpolator"]
)
def test_data_is_as_long_as_its_points(name: str) -> None:
    with pytest.raises(ValueError, match=r"x of shape \[4\] and \[\[2\]\]"):
        getattr(interpolate, name)(np.arange(4.0), lucid_gpu.ones(2))
