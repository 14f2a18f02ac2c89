"""Splines of every mode and order beyond the edges, long adjoints, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.scipy import ndimage

scipy = pytest.importorskip("scipy.ndimage", reason="lucid_gpu.scipy computes by SciPy")

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((7, 5))
FAR = RNG.uniform(-19, 24, (2, 60))
TENSOR = lucid_gpu.tensor(IMAGE)


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("mode", ndimage.MODES)
def test_far_beyond_the_edges(mode: str, order: int) -> None:
    for prefilter in (False, True):
        given: Any = {"order": order, "mode": mode, "cval": 0.3, "prefilter": prefilter}
        wanted = scipy.map_coordinates(IMAGE, FAR, **given)
        found = ndimage.map_coordinates(TENSOR, FAR, **given)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["mirror", "reflect", "grid-wrap"])
def test_the_adjoint_of_a_long_filter(mode: str) -> None:
    a, b = (lucid_gpu.tensor(RNG.standard_normal((2, 80)), requires_grad=True) for _ in range(2))
    there = ndimage.spline_filter1d(a, 5, mode=mode)
    (back,) = lucid_gpu.autograd.grad(there, a, b)
    np.testing.assert_allclose((there * b).sum().item(), (a * back).sum().item(), rtol=1e-11)


@pytest.mark.parametrize("angle", [-180, -90, 0, 90, 270, 25.0])
def test_right_angles_are_exact(angle: float) -> None:
    found = ndimage.rotate(TENSOR, angle)
    np.testing.assert_allclose(found, scipy.rotate(IMAGE, angle), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda a: ndimage.gaussian_filter(a, a.sum()), TypeError, "sigma must be numbers"),
        (lambda a: ndimage.zoom(a, a.sum()), TypeError, "write zoom=zoom.tolist"),
        (lambda a: ndimage.shift(a, 1, mode="edge"), ValueError, "mode must be one of reflect"),
        (lambda a: ndimage.shift(a, 1, order=6), RuntimeError, "from 0 to 5; got 6"),
        (lambda a: ndimage.map_coordinates(a, a), RuntimeError, "must have 2 in axis 0"),
        (lambda a: ndimage.affine_transform(a, a), RuntimeError, r"matrix must be of shape \(2,\)"),
        (lambda a: ndimage.uniform_filter1d(a, 3, origin=2), ValueError, "does not hold its own"),
        (lambda a: ndimage.correlate(a, a[0]), RuntimeError, "must have 2 axes"),
        (lambda a: ndimage.median_filter(a), RuntimeError, "needs size or footprint"),
        (lambda a: ndimage.rotate(a, 1, (0, 0)), ValueError, "two different ones"),
        (lambda a: ndimage.gaussian_filter(a, [1, 2, 3]), ValueError, "one setting or 2"),
    ],
)
def test_refusals_say_what_to_write(call: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        call(TENSOR)
