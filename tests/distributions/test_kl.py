"""Divergences beside PyTorch's, with gradients; pairs of one's own."""

import numpy as np
import pytest

import lucid_gpu
from tests.distributions import tables
from tests.oracle import agree, torch_module

fractions, floats, positive, made = tables.fractions, tables.floats, tables.positive, tables.made
PAIRS = [
    ("Normal", ("loc", "scale"), (floats(3), positive(3), floats(3), positive(3))),
    ("HalfNormal", ("scale",), (positive(3), positive(3))),
    ("LogNormal", ("loc", "scale"), (floats(3), positive(3), floats(3), positive(3))),
    (
        "Uniform",
        ("low", "high"),
        (-fractions(3), fractions(3), -1 - fractions(3), 1 + fractions(3)),
    ),
    ("Exponential", ("rate",), (positive(3), positive(3))),
    ("Laplace", ("loc", "scale"), (floats(3), positive(3), floats(3), positive(3))),
    ("Cauchy", ("loc", "scale"), (floats(3), positive(3), floats(3), positive(3))),
    ("Bernoulli", ("probs",), (fractions(3), fractions(3))),
    ("Geometric", ("probs",), (fractions(3), fractions(3))),
    ("Categorical", ("logits",), (floats(2, 3), floats(2, 3))),
    ("OneHotCategorical", ("probs",), (positive(2, 3), positive(2, 3))),
    ("Gamma", ("concentration", "rate"), (positive(3), positive(3), positive(3), positive(3))),
    (
        "Beta",
        ("concentration1", "concentration0"),
        (positive(3), positive(3), positive(3), positive(3)),
    ),
    ("Dirichlet", ("concentration",), (positive(2, 3), positive(2, 3))),
    ("Poisson", ("rate",), (positive(3), positive(3))),
    ("Gumbel", ("loc", "scale"), (floats(3), positive(3), floats(3), positive(3))),
    ("Chi2", ("df",), (positive(3), positive(3))),
    ("ContinuousBernoulli", ("probs",), (fractions(3), fractions(3))),
    ("Pareto", ("scale", "alpha"), (fractions(3), positive(3), np.full(3, 0.5), positive(3))),
    (
        "MultivariateNormal",
        ("loc", "scale_tril"),
        (floats(2, 3), tables.factor(3, 3), floats(3), tables.factor(2, 3, 3)),
    ),
]


LOW_RANK = {"loc": floats(3), "cov_factor": floats(2, 3, 2), "cov_diag": positive(3)}
OF_VECTORS = [
    ("LowRankMultivariateNormal", LOW_RANK),
    ("LowRankMultivariateNormal", {**LOW_RANK, "loc": floats(3), "cov_factor": floats(3, 1)}),
    ("MultivariateNormal", {"loc": floats(2, 3), "scale_tril": tables.factor(3, 3)}),
]


@pytest.mark.parametrize(("i", "j"), [(0, 1), (1, 2), (2, 0)])
def test_low_ranks(i, j):
    (name_p, of_p), (name_q, of_q) = OF_VECTORS[i], OF_VECTORS[j]

    def divergence(m, *values):
        p = made(name_p, *of_p)(m, *values[: len(of_p)])
        return m.distributions.kl_divergence(p, made(name_q, *of_q)(m, *values[len(of_p) :]))

    agree(divergence, *of_p.values(), *of_q.values(), device="cpu", order=1, rtol=1e-7)


@pytest.mark.parametrize(("name", "names", "values"), PAIRS, ids=[row[0] for row in PAIRS])
def test_agrees_with_torch(name, names, values):
    make = made(name, *names)

    def divergence(m, *values):
        p, q = make(m, *values[: len(names)]), make(m, *values[len(names) :])
        return m.distributions.kl_divergence(p, q)

    agree(divergence, *values, device="cpu", order=1, rtol=1e-7, atol=1e-8)


ACROSS = {
    "Normal": {"loc": floats(3), "scale": positive(3)},
    "Laplace": {"loc": floats(3), "scale": positive(3)},
    "Gumbel": {"loc": floats(3), "scale": positive(3)},
    "Uniform": {"low": fractions(3) * [0.1, 0.1, -1], "high": 0.2 + fractions(3) * [0.8, 5, 1]},
    "Exponential": {"rate": positive(3)},
    "Gamma": {"concentration": positive(3), "rate": positive(3)},
    "Chi2": {"df": positive(3)},
    "Beta": {"concentration1": positive(3), "concentration0": positive(3)},
    "Bernoulli": {"probs": fractions(3)},
    "Binomial": {"total_count": 3, "probs": fractions(3)},
    "Poisson": {"rate": positive(3)},
    "ContinuousBernoulli": {"probs": fractions(3)},
    "Pareto": {"scale": 0.1 * fractions(3), "alpha": np.array([0.5, 1.5, 3.0])},
}


@pytest.mark.parametrize("name", ACROSS)
def test_across_families(name):
    """Where PyTorch has a form, and to a uniform one that holds all of [0, 1]."""
    torch = torch_module()

    def one(m, name, settings):
        return getattr(m.distributions, name)(**settings)

    def of(m, name, leaves):
        given = {k: (m.tensor(v) if k != "total_count" else v) for k, v in ACROSS[name].items()}
        for v in given.values():
            if isinstance(v, m.Tensor):
                leaves.append(v.requires_grad_())
        return one(m, name, given)

    for other in ACROSS:
        if other == name:
            continue
        found = []
        for m in (torch, lucid_gpu):
            leaves = []
            p, q = of(m, name, leaves), of(m, other, leaves)
            try:
                value = m.distributions.kl_divergence(p, q)
            except NotImplementedError:
                found.append(None)
                continue
            row = [value.detach().numpy().copy()]
            if value.isfinite().all() and value.requires_grad:
                value.sum().backward()
                row += [np.zeros(3) if v.grad is None else v.grad.numpy() for v in leaves]
            found.append(row)
        if found[0] is None:
            continue
        for ours, theirs in zip(found[1], found[0], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8, err_msg=other)


def test_families_of_matrices():
    """Each of a batch by itself, which PyTorch adds up."""
    freedom, scales = np.array([4.0, 6.0]), tables.covariance(2, 3, 3)

    def divergence(m, df, scale):
        d = m.distributions
        return d.kl_divergence(d.Wishart(df, scale), d.Wishart(df + 1, m.eye(3).double()))

    agree(divergence, freedom[:1].reshape(()), scales[0], device="cpu", order=1, rtol=1e-7)
    both = divergence(lucid_gpu, lucid_gpu.tensor(freedom), lucid_gpu.tensor(scales))
    for i in range(2):
        one = divergence(lucid_gpu, lucid_gpu.tensor(freedom[i]), lucid_gpu.tensor(scales[i]))
        assert both[i].item() == pytest.approx(one.item())


def test_of_zero_and_one():
    def found(m):
        d, p = m.distributions, m.tensor([0.0, 0.0, 1.0, 1.0, 0.5])
        one = d.kl_divergence(d.Bernoulli(p), d.Bernoulli(m.tensor([0.0, 0.5, 0.5, 0.0, 1.0])))
        weights = m.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
        other = d.kl_divergence(d.Categorical(weights), d.Categorical(weights[[1, 1]]))
        return [*one.tolist(), *other.tolist()]

    assert found(lucid_gpu) == pytest.approx(found(torch_module()))


def test_of_independent_ones():
    d = lucid_gpu.distributions
    p, q = (d.Normal(lucid_gpu.full((2, 3), x), 1.0) for x in (0.0, 2.0))
    whole = d.kl_divergence(d.Independent(p, 1), d.Independent(q, 1))
    assert whole.tolist() == [6, 6]


def test_a_pair_of_ones_own():
    d = lucid_gpu.distributions

    class Mine(d.Normal):
        pass

    @d.register_kl(Mine, d.Normal)
    def _mine(p, q):
        return lucid_gpu.tensor(7.0)

    p = Mine(0.0, 1.0)
    assert d.kl_divergence(p, d.Normal(0.0, 1.0)).item() == 7
    assert d.kl_divergence(d.Normal(0.0, 1.0), p).item() == 0
    with pytest.raises(TypeError, match="Expected type_p to be a Distribution subclass but got"):
        d.register_kl("Normal", d.Normal)
