"""Distributions beside PyTorch's: densities, entropies, moments with gradients; samples."""

import re

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error, torch_module

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
WHAT = ("mean", "mode", "variance", "stddev", "entropy", "cdf", "icdf")


def told(module, make, what, value, parameters):
    distribution = make(module, *parameters)
    if what == "log_prob":
        return distribution.log_prob(value)
    if what in ("cdf", "icdf"):
        return getattr(distribution, what)(value)
    found = getattr(distribution, what)
    return found() if what == "entropy" else found


ROWS = dict(zip(NAMES, TABLE, strict=True))
NOT_COMPARED = [("mode", ROWS["Kumaraswamy"][1])]  # that is always NaN in PyTorch
# By the incomplete gamma function, which has no derivative by its first operand.
VALUES = [("cdf", ROWS[name][1]) for name in ("Gamma", "Chi2", "InverseGamma")]
ON_EACH_DEVICE = ("Normal", "Bernoulli", "Categorical", "MultivariateNormal", "Gamma", "Dirichlet")


@pytest.mark.parametrize("name", ON_EACH_DEVICE)
def test_on_each_device(name, device):
    _, make, parameters, value = ROWS[name]
    test_log_prob_agrees_with_torch(make, parameters, value, device)
    if name != "Categorical":
        test_samples_have_the_moments(name, make, parameters, device)


@pytest.mark.parametrize(("make", "parameters", "value"), [r[1:] for r in TABLE], ids=NAMES)
def test_log_prob_agrees_with_torch(make, parameters, value, device="cpu"):
    """Values and gradients with respect to parameters and value."""

    def log_prob(m, value, *parameters):
        return make(m, *parameters).log_prob(value)

    agree(log_prob, value, *parameters, device=device, order=1, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("make", "parameters", "value"), [r[1:] for r in TABLE], ids=NAMES)
def test_what_is_known_agrees_with_torch(make, parameters, value):
    """Moments, entropy, cdf and its inverse: what PyTorch has, we have."""
    torch = torch_module()
    for what in WHAT:
        if (what, make) in NOT_COMPARED:
            continue
        given = np.full(np.shape(value), 0.3) if what == "icdf" else value
        tensors = [torch.from_numpy(a) for a in parameters]
        try:
            told(torch, make, what, torch.from_numpy(given), tensors)
        except (NotImplementedError, AttributeError):
            continue

        def answer(m, *parameters, what=what, given=given):
            return told(m, make, what, m.from_numpy(given), parameters)

        order = 0 if what == "mode" or (what, make) in VALUES else 1
        agree(answer, *parameters, device="cpu", order=order, rtol=1e-7, atol=1e-8)


@pytest.mark.filterwarnings("ignore:Singular sample")  # which PyTorch says of others, too
@pytest.mark.parametrize(("make", "parameters"), [r[1:3] for r in TABLE], ids=NAMES)
def test_shapes_agree_with_torch(make, parameters):
    found = []
    for m in (lucid_gpu, torch_module()):
        one = make(m, *[m.from_numpy(a) for a in parameters])
        big = one.expand((5, *one.batch_shape))
        found.append(
            [
                tuple(one.batch_shape),
                tuple(one.event_shape),
                tuple(one.sample((2, 3)).shape),
                str(one.sample().dtype).rpartition(".")[2],
                one.has_rsample,
                one.has_enumerate_support,
                one.support.event_dim,
                one.support.is_discrete,
                bool(one.support.check(one.sample((4,))).all()),
                type(big) is type(one),
                tuple(big.batch_shape),
                tuple(big.sample((2,)).shape),
                tuple(big.log_prob(one.sample()).shape),
            ]
        )
    assert found[0] == found[1]


NO_MOMENTS = "Cauchy|Categorical|Transf|squash|Rel|LogisticN|LKJ"
MOMENTS = [row[:3] for row in TABLE if not re.search(NO_MOMENTS, row[0])]


@pytest.mark.parametrize(("name", "make", "parameters"), MOMENTS, ids=[row[0] for row in MOMENTS])
def test_samples_have_the_moments(name, make, parameters, device="cpu"):
    lucid_gpu.manual_seed(3)
    one = make(lucid_gpu, *[lucid_gpu.from_numpy(a).to(device) for a in parameters])
    mean, variance = one.mean.cpu().numpy(), one.variance.cpu().numpy()
    values = one.sample((4000,)).cpu().numpy()
    slack = 5 * np.sqrt(variance / 4000)
    assert (np.abs(values.mean(0) - mean) < slack + 1e-12).all()
    if name not in ("LogNormal", "StudentT", "FisherSnedecor"):  # whose fourth moments are large
        np.testing.assert_allclose(values.var(0), variance, rtol=0.35)


@pytest.mark.parametrize("name", ["Gamma", "Beta", "StudentT"])
def test_implicit_gradients(name):
    """The mean's gradient is that of the samples' mean."""
    _, make, parameters, _ = ROWS[name]
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


def test_reparameterised_gradients(device):
    loc = lucid_gpu.zeros(3, device=device, requires_grad=True)
    scale = lucid_gpu.ones(3, device=device, requires_grad=True)
    lucid_gpu.manual_seed(0)
    value = lucid_gpu.distributions.Normal(loc, scale).rsample((5,))
    value.sum().backward()
    assert loc.grad.tolist() == [5, 5, 5]
    np.testing.assert_allclose(scale.grad.cpu(), value.detach().sum(0).cpu(), rtol=1e-6)
    assert not lucid_gpu.distributions.Normal(loc, scale).sample().requires_grad


def test_samples_of_categories(device):
    lucid_gpu.manual_seed(1)
    weights = lucid_gpu.tensor([[1.0, 2.0, 5.0], [4.0, 0.0, 4.0]]).to(device)
    drawn = lucid_gpu.distributions.Categorical(weights).sample((8000,)).cpu().numpy()
    found = [[(drawn[:, i] == k).mean() for k in range(3)] for i in range(2)]
    np.testing.assert_allclose(found, [[0.125, 0.25, 0.625], [0.5, 0, 0.5]], atol=0.03)


def test_enumerated_support():
    def values(m):
        d = m.distributions
        some = [
            d.Bernoulli(m.tensor([0.2, 0.3])),
            d.Categorical(m.ones(2, 3)),
            d.OneHotCategorical(m.ones(2, 3)),
        ]
        return [one.enumerate_support(e).tolist() for one in some for e in (True, False)]

    assert values(lucid_gpu) == values(torch_module())


def normal(m, *args, **more):
    return m.distributions.Normal(*args, **more)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda m: normal(m, m.zeros(2), m.tensor([1.0, -1.0])),
            "Expected parameter scale (Tensor of shape (2,)) of distribution Normal(loc:",
        ),
        (
            lambda m: normal(m, m.zeros(1), m.tensor([-1.0])),
            "to satisfy the constraint GreaterThan(lower_bound=0.0), but found invalid values:",
        ),
        (lambda m: normal(m, "a", 1.0), "Input arguments must all be instances of Number"),
        (lambda m: normal(m, 0.0, 1.0).log_prob(3.0), "argument to log_prob must be a Tensor"),
        (
            lambda m: normal(m, m.zeros(2), m.ones(2)).log_prob(m.zeros(3)),
            "Value is not broadcastable with batch_shape+event_shape",
        ),
        (
            lambda m: m.distributions.Bernoulli(m.tensor(0.5)).log_prob(m.tensor(2.0)),
            "to be within the support (Boolean()) of the distribution Bernoulli(probs: 0.5)",
        ),
        (
            lambda m: m.distributions.MultivariateNormal(m.zeros(2), m.eye(2)).log_prob(m.zeros(3)),
            "The right-most size of value must match event_shape",
        ),
        (lambda m: m.distributions.Bernoulli(), "Either `probs` or `logits` must be specified"),
        (lambda m: m.distributions.Categorical(m.tensor(1.0)), "must be at least one-dimensional."),
        (lambda m: m.distributions.Uniform(1.0, 0.0), "Uniform is not defined when low>= high"),
        (
            lambda m: m.distributions.MultivariateNormal(m.zeros(2)),
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.",
        ),
        (
            lambda m: m.distributions.MultivariateNormal(m.zeros(2), -m.eye(2)),
            "to satisfy the constraint PositiveDefinite()",
        ),
        (
            lambda m: m.distributions.Independent(normal(m, 0.0, 1.0), 1),
            "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape)",
        ),
        (lambda m: normal(m, 0.0, 1.0).enumerate_support(), ""),
        (
            lambda m: m.distributions.kl_divergence(
                normal(m, 0.0, 1.0), m.distributions.Bernoulli(0.5)
            ),
            "",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_reprs_are_torchs():
    def texts(m):
        d = m.distributions
        some = [
            d.Normal(0.0, 1.0),
            d.Normal(m.zeros(2), m.ones(2)),
            d.Categorical(m.ones(3)),
            d.Independent(d.Normal(m.zeros(2), m.ones(2)), 1),
            d.constraints.unit_interval,
            d.constraints.simplex,
        ]
        return [repr(one).replace("lucid_gpu", "torch") for one in some]

    assert texts(lucid_gpu) == texts(torch_module())


@pytest.mark.filterwarnings("error")
def test_an_older_name_of_sample():
    for m in (lucid_gpu, torch_module()):
        with pytest.warns(FutureWarning, match=r"Use `sample\(\(n,\)\)` instead"):
            assert normal(m, m.zeros(2), 1.0).sample_n(3).shape == (3, 2)


def test_validation_can_be_left_out():
    value = lucid_gpu.tensor(2.0)
    one = lucid_gpu.distributions.Normal(lucid_gpu.tensor(0.0), -1.0, validate_args=False)
    assert one.log_prob(value).isnan()
