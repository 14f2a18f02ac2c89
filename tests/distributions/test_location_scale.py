"""Gradients through samples by location and scale; the von Mises distribution beside PyTorch's."""

import numpy as np
import pytest

import lucid_gpu
from tests.distributions.tables import asked
from tests.oracle import agree


def test_reparameterized_gradients(device):
    loc = lucid_gpu.zeros(3, device=device, requires_grad=True)
    scale = lucid_gpu.ones(3, device=device, requires_grad=True)
    lucid_gpu.manual_seed(0)
    value = lucid_gpu.distributions.Normal(loc, scale).rsample((5,))
    value.sum().backward()
    assert loc.grad.tolist() == [5, 5, 5]
    np.testing.assert_allclose(scale.grad.cpu(), value.detach().sum(0).cpu(), rtol=1e-6)
    assert not lucid_gpu.distributions.Normal(loc, scale).sample().requires_grad


PLACES = (0.1, 0.4, 0.9)


def von_mises(m, loc, concentration):
    return m.distributions.VonMises(loc, concentration)


@pytest.mark.parametrize("what", ["mean", "variance", "log_prob"])
def test_von_mises_agrees_with_torch(what, device):
    def answer(m, *parameters):
        of = von_mises(m, *parameters)
        return asked(of, what, m.tensor(PLACES * 2, dtype=m.float64).to(of.loc.device))

    loc, concentration = np.zeros(6), np.array([0.01, 1.0, 3.7, 3.8, 20.0, 400.0])
    agree(answer, loc, concentration, device=device, order=1, rtol=1e-7, atol=1e-7)


def test_angles_have_the_circular_moments(device):
    lucid_gpu.manual_seed(0)
    loc = lucid_gpu.tensor([3.0, -1.0, 0.0]).to(device)
    of = von_mises(lucid_gpu, loc, lucid_gpu.tensor([0.5, 4.0, 1e-4]).to(device))
    drawn = of.sample((4000,)).cpu().numpy()
    assert drawn.dtype == np.float32 and (np.abs(drawn) <= np.pi + 1e-6).all()
    mean = np.exp(1j * drawn).mean(0)
    np.testing.assert_allclose(1 - np.abs(mean), of.variance.cpu().numpy(), atol=0.03)
    np.testing.assert_allclose(np.angle(mean[:2]), [3.0, -1.0], atol=0.1)
    assert not of.has_rsample and of.expand((2, 3)).sample().shape == (2, 3)
