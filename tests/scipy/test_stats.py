"""Distributions at the edges of their values, by all operands, and against PyTorch's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.scipy import stats

scipys = pytest.importorskip("scipy.stats", reason="lucid_gpu.scipy computes by SciPy")
INF, NAN = math.inf, math.nan
CONTINUOUS = {
    "beta": (2.0, 3.0),
    "cauchy": (),
    "chi2": (3.0,),
    "expon": (),
    "gamma": (2.0,),
    "laplace": (),
    "logistic": (),
    "lognorm": (0.5,),
    "norm": (),
    "t": (2.5,),
    "uniform": (),
}
DISCRETE = {"bernoulli": (0.3,), "binom": (3, 0.3), "poisson": (1.5,)}
WIDE = [-INF, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, INF, NAN]


def double(value, grad=False):
    return lucid_gpu.tensor(value, dtype=lucid_gpu.float64, requires_grad=grad)


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_edges_are_scipys(name):
    """Outside the values, at their ends, at NaN, and where there is no such distribution."""
    shapes, kind = {**CONTINUOUS, **DISCRETE}[name], "pmf" if name in DISCRETE else "pdf"
    tails = [(m, WIDE) for m in (kind, f"log{kind}", "cdf", "sf", "logcdf", "logsf")]
    shares = [(m, [-0.1, 0.0, 0.3, 1.0, 1.1]) for m in ("ppf", "isf") if kind == "pdf"]
    for method, values in tails + shares:
        for moved in ((0.25, 2.0), (0.0, -1.0)) if kind == "pdf" else ((0,), (1,)):
            with np.errstate(all="ignore"):
                expected = getattr(getattr(scipys, name), method)(values, *shapes, *moved)
            got = getattr(getattr(stats, name), method)(double(values), *shapes, *moved)
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_no_gradient_comes_from_outside(name):
    x = double([-1e3, 1e3], grad=True)
    with_shapes = getattr(stats, name)
    (with_shapes.cdf(x, *CONTINUOUS[name]) + with_shapes.sf(x, *CONTINUOUS[name])).sum().backward()
    assert x.grad.isfinite().all()


def test_operands_of_vectors():
    root, x = double([[1.0, 0.2], [0.3, 0.8]], True), double([[0.2, -0.3], [1.0, 0.4]], True)
    normal = stats.multivariate_normal.logpdf
    assert gradcheck(lambda x, root: normal(x, None, root @ root.mT), (x, root))
    parts = double([[0.2, 0.3], [0.3, 0.3]], grad=True)
    alpha = double([0.5, 1.5, 2.0], grad=True)
    assert gradcheck(stats.dirichlet.pdf, (parts, alpha))
    points = double([[0.2, 1.0], [-0.3, 0.4]], grad=True)
    data = np.array([[0.1, 0.5, -1.0], [0.3, -0.8, 0.9]])
    assert gradcheck(lambda p: stats.gaussian_kde(data)(p), (points,))


def test_a_multinomials_values_are_scipys():
    x, p = [[1, 0, 3], [1, 1, 1], [2, 1, 1]], [0.2, 0.3, 0.5]
    got = stats.multinomial.logpmf(double(x), 4, p).numpy()
    np.testing.assert_allclose(got, scipys.multinomial.logpmf(x, 4, p), rtol=1e-12)


def test_other_methods_are_scipys():
    assert stats.gamma(2.0, scale=3.0).mean() == 6.0
    assert stats.norm.rvs(size=3, random_state=0).shape == (3,)
    assert stats.poisson.ppf([0.5], 3.0).tolist() == [3.0]
    with pytest.raises(TypeError, match=r"stats.gamma\(...\).mean has no derivative; make the"):
        stats.gamma(double(2.0)).mean()
    with pytest.raises(TypeError, match="takes 'scott', 'silverman' or a number as bw_method"):
        stats.gaussian_kde(double([1.0, 2.0]), "wide")(0.5)
    with pytest.raises(ValueError, match="x has 1 parts and alpha 3; give as many, or all but"):
        stats.dirichlet.pdf(double([0.5]), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="mean has 3 parts and cov the shape"):
        stats.multivariate_normal.pdf(double([0.5, 0.1, 0.2]), [0.0, 0.0, 0.0], np.eye(2))


@pytest.mark.parametrize(("name", "theirs"), [("gamma", "Gamma"), ("t", "StudentT")])
def test_densities_are_pytorchs(name, theirs):
    torch = pytest.importorskip("torch", reason="the peer")
    ours, its = double([0.7, 2.5], grad=True), torch.tensor([0.7, 2.5], dtype=torch.double)
    its.requires_grad_()
    getattr(stats, name).logpdf([0.5, 2.0], ours).sum().backward()
    law = getattr(torch.distributions, theirs)
    made = law(its, torch.ones(2, dtype=torch.double)) if name == "gamma" else law(its)
    made.log_prob(torch.tensor([0.5, 2.0], dtype=torch.double)).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), its.grad.numpy(), rtol=1e-12)
