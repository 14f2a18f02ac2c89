"""Gradients of samples of the gamma family."""

import numpy as np
import pytest

import lucid_gpu
from tests.distributions import tables


@pytest.mark.parametrize("name", ["Gamma", "Beta", "StudentT"])
def test_implicit_gradients(name):
    """The mean's gradient is that of the samples' mean."""
    _, make, parameters, _ = tables.ROWS[name]
    lucid_gpu.manual_seed(5)
    given = [lucid_gpu.from_numpy(a).requires_grad_() for a in parameters]
    one = make(lucid_gpu, *given)
    one.mean.sum().backward()
    expected = [np.zeros(3) if p.grad is None else p.grad.numpy().copy() for p in given]
    for p in given:
        p.grad = None
    one.rsample((20_000,)).mean(0).sum().backward()
    for p, e in zip(given, expected, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), e, atol=0.12)
