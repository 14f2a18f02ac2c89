"""Layers, functions and transforms whose kin are tested by loops elsewhere, each by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import agree

RNG = np.random.default_rng(12)
LINE, IMAGE, VOLUME = [RNG.standard_normal((2, 3, *[4] * n)) for n in (1, 2, 3)]
POSITIVE = RNG.uniform(0.2, 2.0, (3, 4))


def functional(m: Any) -> Any:
    return m.nn.functional


def unpooled(m: Any, x: Any, n: int) -> Any:
    pool = getattr(functional(m), f"max_pool{n}d")
    values, places = pool(x, 2, return_indices=True)
    return values, places


CASES: dict[str, tuple[Any, Any]] = {
    **{
        f"{kind}Pad{n}d": (lambda m, x, name=f"{kind}Pad{n}d": getattr(m.nn, name)(1)(x), array)
        for kind in ("Circular", "Reflection", "Replication", "Zero")
        for n, array in ((1, LINE), (2, IMAGE), (3, VOLUME))
    },
    "adaptive_avg_pool1d": (lambda m, x: functional(m).adaptive_avg_pool1d(x, 3), LINE),
    "adaptive_avg_pool2d to one": (lambda m, x: functional(m).adaptive_avg_pool2d(x, 1), IMAGE),
    "avg_pool3d": (lambda m, x: functional(m).avg_pool3d(x, 2, 1, 1), VOLUME),
    "conv3d": (lambda m, x: functional(m).conv3d(x, x[:, :, :2, :2, :2], padding=1), VOLUME),
    "conv_transpose3d": (
        lambda m, x: functional(m).conv_transpose3d(x, x[:1, :, :2, :2, :2].transpose(0, 1)), VOLUME
    ),
    "lp_pool1d": (lambda m, x: functional(m).lp_pool1d(x, 3, 2), LINE),
    "lp_pool2d": (lambda m, x: functional(m).lp_pool2d(x, 2, 2), IMAGE),
    "lp_pool3d": (lambda m, x: functional(m).lp_pool3d(x, 2, 2), VOLUME),
    "max_unpool1d": (lambda m, x: functional(m).max_unpool1d(*unpooled(m, x, 1), 2), LINE),
    "max_unpool2d": (lambda m, x: functional(m).max_unpool2d(*unpooled(m, x, 2), 2), IMAGE),
    "max_unpool3d": (lambda m, x: functional(m).max_unpool3d(*unpooled(m, x, 3), 2), VOLUME),
    "MaxUnpool3d": (lambda m, x: m.nn.MaxUnpool3d(2)(*unpooled(m, x, 3)), VOLUME),
    "celu_": (lambda m, x: functional(m).celu_(x * 1, 0.7), LINE),
    "elu_": (lambda m, x: functional(m).elu_(x * 1, 0.7), LINE),
    "selu_": (lambda m, x: functional(m).selu_(x * 1), LINE),
    "hardtanh_": (lambda m, x: functional(m).hardtanh_(x * 1, -0.5, 0.5), LINE),
    "leaky_relu_": (lambda m, x: functional(m).leaky_relu_(x * 1, 0.2), LINE),
    "rrelu_": (lambda m, x: functional(m).rrelu_(x * 1, 0.1, 0.3), LINE),
    "poisson_nll_loss": (
        lambda m, x: functional(m).poisson_nll_loss(x, x.detach() + 0.5, full=True), POSITIVE
    ),
    "triplet_margin_with_distance_loss": (
        lambda m, x: functional(m).triplet_margin_with_distance_loss(x[0], x[1], x[2] * 2), POSITIVE
    ),
    **{
        name: (lambda m, x, name=name: getattr(m.distributions, name)()(x), POSITIVE)
        for name in ("AbsTransform", "SoftmaxTransform", "SoftplusTransform")
    },
    "PowerTransform": (
        lambda m, x: m.distributions.PowerTransform(m.tensor(1.7, dtype=x.dtype))(x), POSITIVE
    ),
    "IndependentTransform": (
        lambda m, x: m.distributions.IndependentTransform(
            m.distributions.ExpTransform(), 1
        ).log_abs_det_jacobian(x, x.exp()),
        POSITIVE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str) -> None:
    function, array = CASES[name]
    agree(function, array, device="cpu", order=1)
