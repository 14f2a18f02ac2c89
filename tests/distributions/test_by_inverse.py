"""The generalized Pareto distribution beside PyTorch's, in single precision; Kumaraswamy's mode."""

import numpy as np
import pytest

import lucid_gpu
from tests.distributions.tables import asked
from tests.oracle import agree

WHAT = ("mean", "variance", "entropy", "cdf", "icdf", "log_prob", "log_cdf")


PLACES = (0.1, 0.4, 0.9)


def generalized_pareto(m, *parameters):
    return m.distributions.GeneralizedPareto(*[p.float() for p in parameters])


@pytest.mark.parametrize("what", WHAT)
def test_generalized_pareto_agrees_with_torch(what, device):
    def answer(m, *parameters):
        of = generalized_pareto(m, *parameters)
        return asked(of, what, m.tensor(PLACES).to(of.loc.device))

    parameters = np.array([-0.3, 0.0, 0.05]), np.array([0.7, 1.3, 2.0]), np.array([0.4, 0.0, -0.3])
    agree(answer, *parameters, device=device, order=1, rtol=1e-4, atol=1e-5)


def test_its_support_and_samples():
    lucid_gpu.manual_seed(0)
    of = lucid_gpu.distributions.GeneralizedPareto(0.5, 2.0, lucid_gpu.tensor([0.2, 0.0, -0.5]))
    drawn = of.sample((4000,))
    assert of.support.check(drawn).all() and of.expand((2, 3)).log_prob(drawn[:2]).shape == (2, 3)
    assert drawn[:, 2].max() <= 4.5
    np.testing.assert_allclose(drawn.mean(0).numpy(), of.mean.numpy(), rtol=0.1)


def test_the_mode_of_kumaraswamy():
    one = lucid_gpu.distributions.Kumaraswamy(2.0, lucid_gpu.tensor([3.0, 0.5]))
    places = lucid_gpu.linspace(0.001, 0.999, 999)[:, None]
    highest = places[one.log_prob(places)[:, 0].argmax(), 0]
    assert abs(one.mode[0] - highest) < 1e-3 and one.mode[1].isnan()
