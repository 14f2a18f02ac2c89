"""Distributions by name, with parameters and a value: the rows that every family is tested by."""

import numpy as np

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape)


def positive(*shape):
    return RNG.uniform(0.3, 3.0, shape)


def fractions(*shape):
    return RNG.uniform(0.1, 0.9, shape)


def factor(*shape):
    return np.tril(RNG.uniform(0.2, 0.6, shape)) + np.eye(shape[-1])


def covariance(*shape):
    half = factor(*shape)
    return half @ half.swapaxes(-1, -2)


def correlation(*shape):
    """The factor of a correlation matrix."""
    rows = factor(*shape)
    return rows / np.sqrt((rows**2).sum(-1, keepdims=True))


def simplex(*shape):
    weights = positive(*shape)
    return weights / weights.sum(-1, keepdims=True)


def counts(most, *shape):
    return RNG.integers(0, most, shape).astype(float)


def hot(*shape):
    return np.eye(shape[-1])[RNG.integers(0, shape[-1], shape[:-1])]


def made(name, *names, **more):
    """A distribution of either module by its parameters' names."""

    def make(m, *values):
        return getattr(m.distributions, name)(**dict(zip(names, values, strict=True)), **more)

    return make


def standard(m, x):
    """A normal one through two maps."""
    d = m.distributions
    maps = [d.AffineTransform(0.5, -2.0), d.SigmoidTransform()]
    return d.TransformedDistribution(d.Normal(x, 1.0), maps)


def squashed(m, loc, scale):
    d = m.distributions
    return d.TransformedDistribution(d.Normal(loc, scale), d.TanhTransform())


def grouped(m, loc, scale):
    return m.distributions.Independent(m.distributions.Normal(loc, scale), 1)


def mixture(m, weights, loc, scale):
    d = m.distributions
    return d.MixtureSameFamily(d.Categorical(weights), d.Normal(loc, scale))


beta = made("Beta", "concentration1", "concentration0")


student = made("StudentT", "df", "loc", "scale")


draws = made("Multinomial", "probs", total_count=4)


def nearly(m, probs):
    return m.distributions.RelaxedBernoulli(m.tensor(0.7, dtype=m.float64), probs=probs)


def relaxed(m, weights):
    temperature = m.tensor(0.7, dtype=m.float64)
    return m.distributions.RelaxedOneHotCategorical(temperature, probs=weights)


# what, its parameters, a value
TABLE = [
    ("Normal", made("Normal", "loc", "scale"), (floats(3, 1), positive(4)), floats(2, 3, 4)),
    ("LogNormal", made("LogNormal", "loc", "scale"), (floats(3), positive(3)), positive(3)),
    ("Uniform", made("Uniform", "low", "high"), (-positive(3), positive(3)), fractions(3) * 0.3),
    ("Exponential", made("Exponential", "rate"), (positive(3),), positive(2, 3)),
    ("Laplace", made("Laplace", "loc", "scale"), (floats(3), positive(3)), floats(3)),
    ("Cauchy", made("Cauchy", "loc", "scale"), (floats(3), positive(3)), floats(3)),
    ("HalfNormal", made("HalfNormal", "scale"), (positive(3),), positive(3)),
    ("Gumbel", made("Gumbel", "loc", "scale"), (floats(3), positive(3)), floats(3)),
    ("Bernoulli", made("Bernoulli", "probs"), (fractions(4),), counts(2, 2, 4)),
    ("Bernoulli by logits", made("Bernoulli", "logits"), (floats(4),), counts(2, 4)),
    ("Geometric", made("Geometric", "probs"), (fractions(4),), counts(5, 4)),
    ("Geometric by logits", made("Geometric", "logits"), (floats(4),), counts(5, 4)),
    ("Categorical", made("Categorical", "probs"), (positive(2, 4),), counts(4, 3, 2)),
    ("Categorical by logits", made("Categorical", "logits"), (floats(2, 4),), counts(4, 2)),
    ("OneHotCategorical", made("OneHotCategorical", "probs"), (positive(2, 4),), hot(2, 4)),
    (
        "MultivariateNormal",
        made("MultivariateNormal", "loc", "scale_tril"),
        (floats(2, 3), factor(3, 3)),
        floats(4, 2, 3),
    ),
    (
        "MultivariateNormal by covariance",
        made("MultivariateNormal", "loc", "covariance_matrix", validate_args=False),
        (floats(3), covariance(2, 3, 3)),
        floats(2, 3),
    ),
    (
        "MultivariateNormal by precision",
        made("MultivariateNormal", "loc", "precision_matrix", validate_args=False),
        (floats(3), covariance(3, 3)),
        floats(3),
    ),
    ("Gamma", made("Gamma", "concentration", "rate"), (positive(3), positive(3)), positive(2, 3)),
    ("Chi2", made("Chi2", "df"), (positive(3),), positive(3)),
    (
        "Beta",
        made("Beta", "concentration1", "concentration0"),
        (positive(3), positive(3)),
        fractions(3),
    ),
    ("Dirichlet", made("Dirichlet", "concentration"), (positive(2, 4),), simplex(2, 4)),
    (
        "StudentT",
        made("StudentT", "df", "loc", "scale"),
        (2 + positive(3), floats(3), positive(3)),
        floats(3),
    ),
    ("Poisson", made("Poisson", "rate"), (positive(3),), counts(6, 3)),
    ("Binomial", made("Binomial", "probs", total_count=5), (fractions(4),), counts(6, 4)),
    ("Binomial by logits", made("Binomial", "logits", total_count=5), (floats(4),), counts(6, 4)),
    (
        "Multinomial",
        made("Multinomial", "probs", total_count=4),
        (positive(2, 3),),
        np.array([[1.0, 3, 0], [2, 1, 1]]),
    ),
    (
        "RelaxedBernoulli",
        nearly,
        (fractions(3),),
        fractions(3),
    ),
    ("RelaxedOneHotCategorical", relaxed, (positive(2, 3),), simplex(2, 3)),
    ("TransformedDistribution", standard, (floats(3),), fractions(3)),
    ("squashed", squashed, (floats(3), positive(3)), fractions(3)),
    ("Independent", grouped, (floats(2, 3), positive(2, 3)), floats(4, 2, 3)),
    ("MixtureSameFamily", mixture, (simplex(3, 4), floats(3, 4), positive(3, 4)), floats(2, 3)),
]


COUNTS = np.array([2.0, 0.5, 3.0])


TABLE += [
    ("Weibull", made("Weibull", "scale", "concentration"), (positive(3), positive(3)), positive(3)),
    ("Pareto", made("Pareto", "scale", "alpha"), (fractions(3), 4 + positive(3)), 1 + positive(3)),
    (
        "Kumaraswamy",
        made("Kumaraswamy", "concentration1", "concentration0"),
        (positive(3), positive(3)),
        fractions(2, 3),
    ),
    ("HalfCauchy", made("HalfCauchy", "scale"), (positive(3),), positive(3)),
    (
        "InverseGamma",
        made("InverseGamma", "concentration", "rate"),
        (5 + positive(3), positive(3)),
        positive(2, 3),
    ),
    (
        "FisherSnedecor",
        made("FisherSnedecor", "df1", "df2"),
        (2 + positive(3), 9 + positive(3)),
        positive(3),
    ),
    (
        "NegativeBinomial",
        lambda m, probs: m.distributions.NegativeBinomial(m.tensor(COUNTS), probs),
        (fractions(3),),
        counts(5, 2, 3),
    ),
    (
        "NegativeBinomial by logits",
        made("NegativeBinomial", "total_count", "logits"),
        (positive(3), floats(3)),
        counts(5, 3),
    ),
    (
        "ContinuousBernoulli",
        made("ContinuousBernoulli", "probs"),
        (np.array([0.2, 0.5, 0.5003, 0.9]),),
        fractions(2, 4),
    ),
    (
        "ContinuousBernoulli by logits",
        made("ContinuousBernoulli", "logits"),
        (floats(3),),
        fractions(3),
    ),
]


TABLE += [
    (
        "LogisticNormal",
        made("LogisticNormal", "loc", "scale"),
        (floats(2, 3), positive(3)),
        simplex(2, 4),
    ),
    (
        "LowRankMultivariateNormal",
        made("LowRankMultivariateNormal", "loc", "cov_factor", "cov_diag"),
        (floats(2, 4), floats(4, 2), positive(4)),
        floats(3, 2, 4),
    ),
    (
        "Wishart",
        made("Wishart", "df", "covariance_matrix"),
        (5 + positive(2), covariance(3, 3)),
        covariance(2, 3, 3),
    ),
    (
        "Wishart by its precision",
        made("Wishart", "df", "precision_matrix"),
        (5 + positive(2, 1), covariance(2, 3, 3)),
        covariance(3, 3),
    ),
    (
        "LKJCholesky",
        made("LKJCholesky", "concentration", dim=3),
        (positive(2),),
        correlation(2, 3, 3),
    ),
]


NAMES = [row[0] for row in TABLE]


ROWS = dict(zip(NAMES, TABLE, strict=True))


def asked(distribution, what, value):
    """A distribution's ``mean``, ``entropy()``, ``cdf(value)`` ..."""
    answer = getattr(distribution, what)
    if what == "entropy":
        return answer()
    return answer(value) if what in ("cdf", "icdf", "log_cdf", "log_prob") else answer
