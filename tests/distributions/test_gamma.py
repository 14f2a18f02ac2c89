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


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_shares_of_small_concentrations_stay_inside(name: str, device: str) -> None:
    """Neither 0 nor 1, whose density is infinite, and no heap at a half where both underflow."""
    kind = getattr(lucid_gpu, name)
    lucid_gpu.manual_seed(0)
    small = lucid_gpu.tensor(1e-2, dtype=kind, device=device)
    x = lucid_gpu.distributions.Beta(small, small).sample((4000,))
    assert x.dtype is kind
    assert not bool(((x == 0) | (x == 1)).any())
    for near in (x < 0.1, x > 0.9):
        assert abs(near.double().mean().item() - 0.5) < 0.05


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_one_sample_without_dimensions(name: str, device: str) -> None:
    one = lucid_gpu.tensor(1.0, dtype=getattr(lucid_gpu, name), device=device)
    for made in (
        lucid_gpu.distributions.Gamma(one, one),
        lucid_gpu.distributions.Chi2(one),
        lucid_gpu.distributions.StudentT(one),
        lucid_gpu.distributions.Beta(one, one),
    ):
        assert made.sample().shape == ()


@pytest.mark.parametrize(("concentration", "expected"), [(0.5, np.inf), (1.0, 0.0), (2.0, -np.inf)])
def test_the_density_of_a_number(concentration, expected):
    assert lucid_gpu.distributions.Gamma(concentration, 1.0).log_prob(0).item() == expected
