"""Probability distributions, under PyTorch's names.

A file holds a family. PyTorch's modules, one for each distribution, are names of these files:
``from lucid_gpu.distributions.normal import Normal``.
"""

import sys as _sys

from lucid_gpu.distributions import (
    bernoulli,
    by_inverse,
    categorical,
    composed,
    constraints,
    counts,
    derived,
    dirichlet,
    distribution,
    gamma,
    location_scale,
    multivariate_normal,
    relaxed,
    transform,
    transforms,
    wishart,
)
from lucid_gpu.distributions.bernoulli import (
    Bernoulli,
    ContinuousBernoulli,
    Geometric,
)
from lucid_gpu.distributions.by_inverse import GeneralizedPareto, Kumaraswamy, Pareto, Weibull
from lucid_gpu.distributions.categorical import (
    Categorical,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from lucid_gpu.distributions.composed import Independent, MixtureSameFamily, TransformedDistribution
from lucid_gpu.distributions.constraint_registry import biject_to, transform_to
from lucid_gpu.distributions.counts import Binomial, Multinomial, NegativeBinomial, Poisson
from lucid_gpu.distributions.derived import HalfCauchy, HalfNormal, LogisticNormal, LogNormal
from lucid_gpu.distributions.dirichlet import Beta, Dirichlet
from lucid_gpu.distributions.distribution import Distribution, ExponentialFamily
from lucid_gpu.distributions.gamma import (
    Chi2,
    Exponential,
    FisherSnedecor,
    Gamma,
    InverseGamma,
    StudentT,
)
from lucid_gpu.distributions.kl import kl_divergence, register_kl
from lucid_gpu.distributions.location_scale import (
    Cauchy,
    Gumbel,
    Laplace,
    Normal,
    Uniform,
    VonMises,
)
from lucid_gpu.distributions.multivariate_normal import (
    LowRankMultivariateNormal,
    MultivariateNormal,
)
from lucid_gpu.distributions.relaxed import (
    LogitRelaxedBernoulli,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from lucid_gpu.distributions.transforms import *  # noqa: F403
from lucid_gpu.distributions.wishart import LKJCholesky, Wishart
from lucid_gpu.nn.argument_errors import all_named_in_errors as _all_named_in_errors

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ContinuousBernoulli",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "StudentT",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "kl_divergence",
    "register_kl",
    "transform_to",
]
__all__ += transforms.__all__

_all_named_in_errors(globals(), Distribution)

# PyTorch's modules that have no file here, and the two that earlier pickles name, by their file.
_NAMES = {
    bernoulli: "continuous_bernoulli geometric",
    by_inverse: "generalized_pareto kumaraswamy pareto weibull",
    categorical: "one_hot_categorical",
    composed: "independent mixture_same_family transformed_distribution",
    counts: "binomial multinomial negative_binomial poisson",
    derived: "half_cauchy half_normal log_normal logistic_normal",
    dirichlet: "beta",
    distribution: "exp_family",
    gamma: "chi2 exponential fishersnedecor inverse_gamma studentT",
    location_scale: "cauchy gumbel laplace normal uniform von_mises",
    multivariate_normal: "lowrank_multivariate_normal",
    relaxed: "relaxed_bernoulli relaxed_categorical",
    transform: "joined_transforms",
    transforms: "vector_transforms",
    wishart: "lkj_cholesky",
}
for _file, _names in _NAMES.items():
    for _name in _names.split():
        globals()[_name] = _sys.modules[f"{__name__}.{_name}"] = _file
del _file, _name, _names
