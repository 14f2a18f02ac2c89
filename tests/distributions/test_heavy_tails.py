"""Distributions beside the common table: in PyTorch of single precision only, or circular."""

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error, torch_module

WHAT = ("mean", "variance", "entropy", "cdf", "icdf", "log_prob", "log_cdf")
PLACES = (0.1, 0.4, 0.9)


def told(distribution, what, value):
    found = getattr(distribution, what)
    if what in ("mean", "variance"):
        return found
    return found() if what == "entropy" else found(value)


def generalized_pareto(m, *parameters):
    return m.distributions.GeneralizedPareto(*[p.float() for p in parameters])


@pytest.mark.parametrize("what", WHAT)
def test_generalized_pareto_agrees_with_torch(what, device):
    def answer(m, *parameters):
        of = generalized_pareto(m, *parameters)
        return told(of, what, m.tensor(PLACES).to(of.loc.device))

    parameters = np.array([-0.3, 0.0, 0.05]), np.array([0.7, 1.3, 2.0]), np.array([0.4, 0.0, -0.3])
    agree(answer, *parameters, device=device, order=1, rtol=1e-4, atol=1e-5)


def test_its_support_and_samples():
    lucid_gpu.manual_seed(0)
    of = lucid_gpu.distributions.GeneralizedPareto(0.5, 2.0, lucid_gpu.tensor([0.2, 0.0, -0.5]))
    drawn = of.sample((4000,))
    assert of.support.check(drawn).all() and of.expand((2, 3)).log_prob(drawn[:2]).shape == (2, 3)
    assert drawn[:, 2].max() <= 4.5
    np.testing.assert_allclose(drawn.mean(0).numpy(), of.mean.numpy(), rtol=0.1)


def von_mises(m, loc, concentration):
    return m.distributions.VonMises(loc, concentration)


@pytest.mark.parametrize("what", ["mean", "variance", "log_prob"])
def test_von_mises_agrees_with_torch(what, device):
    def answer(m, *parameters):
        of = von_mises(m, *parameters)
        return told(of, what, m.tensor(PLACES * 2, dtype=m.float64).to(of.loc.device))

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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d, m: d.Weibull(1.0, -1.0), "parameter concentration"),
        (lambda d, m: d.Pareto(1.0, 2.0).log_prob(m.tensor(0.5)), "within the support (Greater"),
        (lambda d, m: d.VonMises(m.tensor(0.0), m.tensor(0.0)), "parameter concentration"),
        (lambda d, m: d.NegativeBinomial(-1.0, m.tensor(0.5)), "parameter total_count"),
        (lambda d, m: d.NegativeBinomial(1.0, m.tensor(1.0)), "parameter probs"),
        (lambda d, m: d.NegativeBinomial(1.0), "Either `probs` or `logits` must be specified"),
        (lambda d, m: d.ContinuousBernoulli(), "Either `probs` or `logits` must be specified"),
        (lambda d, m: d.ContinuousBernoulli(m.tensor(2.0), validate_args=True), "probs"),
        (lambda d, m: d.Kumaraswamy(0.0, 1.0), "parameter concentration1"),
        (lambda d, m: d.NegativeBinomial(1.0, m.tensor(0.5)).entropy(), ""),
    ],
)
def test_errors_are_torchs(call, words):
    torch_module()
    same_error(lambda m: call(m.distributions, m), words)


def test_the_mode_of_kumaraswamy():
    one = lucid_gpu.distributions.Kumaraswamy(2.0, lucid_gpu.tensor([3.0, 0.5]))
    places = lucid_gpu.linspace(0.001, 0.999, 999)[:, None]
    highest = places[one.log_prob(places)[:, 0].argmax(), 0]
    assert abs(one.mode[0] - highest) < 1e-3 and one.mode[1].isnan()
