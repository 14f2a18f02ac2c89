"""Distributions beside PyTorch's: densities, entropies, moments with gradients; samples."""

import re

import numpy as np
import pytest

import lucid_gpu
from tests.distributions.tables import NAMES, ROWS, TABLE, asked
from tests.oracle import agree, same_error, torch_module

WHAT = ("mean", "mode", "variance", "stddev", "entropy", "cdf", "icdf")


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
            asked(make(torch, *tensors), what, torch.from_numpy(given))
        except (NotImplementedError, AttributeError):
            continue

        def answer(m, *parameters, what=what, given=given):
            return asked(make(m, *parameters), what, m.from_numpy(given))

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
def test_errors_of_parameters_are_torchs(call, words):
    torch_module()
    same_error(lambda m: call(m.distributions, m), words)


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


def test_expand_of_a_subclass_with_arguments_of_its_own():
    d = lucid_gpu.distributions

    class Shifted(d.Independent):
        def __init__(self, loc):
            super().__init__(d.Normal(loc, lucid_gpu.ones_like(loc)), 1)

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Shifted, _instance)
            return super().expand(batch_shape, new)

    class Further(Shifted):
        def __init__(self):
            super().__init__(lucid_gpu.zeros(2))

    larger = Shifted(lucid_gpu.zeros(2)).expand((3,))
    assert type(larger) is Shifted and larger.batch_shape == (3,) and larger.event_shape == (2,)
    with pytest.raises(NotImplementedError, match=r"Subclass Further of Shifted .* \.expand\(\)"):
        Further().expand((3,))


def test_what_classes_say_of_their_support() -> None:
    torch = torch_module()
    for name in ("Binomial", "Categorical", "Multinomial", "Uniform", "Wishart"):
        ours = getattr(lucid_gpu.distributions, name).support
        theirs = getattr(torch.distributions, name).support
        assert (ours.is_discrete, ours.event_dim) == (theirs.is_discrete, theirs.event_dim)
    for name in ("Independent", "MixtureSameFamily", "TransformedDistribution"):
        same_error(lambda m, n=name: getattr(m.distributions, n).support.event_dim, "statically")
