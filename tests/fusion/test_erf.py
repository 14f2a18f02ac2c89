"""The error function in float32 is not the table's branches but a few ufuncs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import explain

POINTS = np.concatenate(
    [np.linspace(-6, 6, 20001), np.geomspace(1e-30, 5, 5000), [np.inf, -np.inf, np.nan, 0.0, -0.0]]
).astype(np.float32)


@pytest.mark.parametrize("shape", ["whole", "small"])
def test_four_units_in_the_last_place(device: str, shape: str) -> None:
    """Three where NumPy has fused multiply-add; without, its tanh alone is two units off."""
    x = POINTS if shape == "whole" else POINTS[-5:]
    t = lucid_gpu.from_numpy(x).to(device)
    # beside a value of another shape it is computed once, before the blocks
    wanted = np.array([math.erf(v) for v in x.tolist()])
    results: list[Any] = [t.erf(), lucid_gpu.ones(2, 1, device=device) * t.erf()]
    for y in [r.numpy(force=True) for r in results]:
        error = np.abs(y - wanted)[..., np.isfinite(wanted)]
        unit = np.spacing(np.abs(wanted[np.isfinite(wanted)]).astype(np.float32))
        assert (error <= 4 * unit).all()
        np.testing.assert_array_equal(np.isnan(y), np.broadcast_to(np.isnan(x), y.shape))
        assert (np.signbit(y) == np.signbit(x))[..., ~np.isnan(x)].all()


def test_where_it_is_one_it_is_one() -> None:
    y = lucid_gpu.tensor([4.5, 5.0, math.inf, -4.5]).erf()
    assert y.tolist() == [1, 1, 1, -1]


def test_it_is_plain_ufuncs() -> None:
    assert "special" not in explain(lucid_gpu.randn(3).erf()).source
    assert "special" in explain(lucid_gpu.randn(3).double().erf()).source
