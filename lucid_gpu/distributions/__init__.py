"""Probability distributions, under PyTorch's names."""

from lucid_gpu.argument_errors import all_named_in_errors as _all_named_in_errors
from lucid_gpu.distributions import constraints, kl_across, transforms
from lucid_gpu.distributions.bernoulli import Bernoulli
from lucid_gpu.distributions.beta import Beta
from lucid_gpu.distributions.binomial import Binomial
from lucid_gpu.distributions.categorical import Categorical
from lucid_gpu.distributions.cauchy import Cauchy
from lucid_gpu.distributions.chi2 import Chi2
from lucid_gpu.distributions.constraint_registry import biject_to, transform_to
from lucid_gpu.distributions.continuous_bernoulli import ContinuousBernoulli
from lucid_gpu.distributions.dirichlet import Dirichlet
from lucid_gpu.distributions.distribution import Distribution
from lucid_gpu.distributions.exp_family import ExponentialFamily
from lucid_gpu.distributions.exponential import Exponential
from lucid_gpu.distributions.fishersnedecor import FisherSnedecor
from lucid_gpu.distributions.gamma import Gamma
from lucid_gpu.distributions.generalized_pareto import GeneralizedPareto
from lucid_gpu.distributions.geometric import Geometric
from lucid_gpu.distributions.gumbel import Gumbel
from lucid_gpu.distributions.half_cauchy import HalfCauchy
from lucid_gpu.distributions.half_normal import HalfNormal
from lucid_gpu.distributions.independent import Independent
from lucid_gpu.distributions.inverse_gamma import InverseGamma
from lucid_gpu.distributions.kl import kl_divergence, register_kl
from lucid_gpu.distributions.kumaraswamy import Kumaraswamy
from lucid_gpu.distributions.laplace import Laplace
from lucid_gpu.distributions.lkj_cholesky import LKJCholesky
from lucid_gpu.distributions.log_normal import LogNormal
from lucid_gpu.distributions.logistic_normal import LogisticNormal
from lucid_gpu.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from lucid_gpu.distributions.mixture_same_family import MixtureSameFamily
from lucid_gpu.distributions.multinomial import Multinomial
from lucid_gpu.distributions.multivariate_normal import MultivariateNormal
from lucid_gpu.distributions.negative_binomial import NegativeBinomial
from lucid_gpu.distributions.normal import Normal
from lucid_gpu.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from lucid_gpu.distributions.pareto import Pareto
from lucid_gpu.distributions.poisson import Poisson
from lucid_gpu.distributions.relaxed_bernoulli import LogitRelaxedBernoulli, RelaxedBernoulli
from lucid_gpu.distributions.relaxed_categorical import RelaxedOneHotCategorical
from lucid_gpu.distributions.studentT import StudentT
from lucid_gpu.distributions.transformed_distribution import TransformedDistribution
from lucid_gpu.distributions.transforms import *  # noqa: F403
from lucid_gpu.distributions.uniform import Uniform
from lucid_gpu.distributions.von_mises import VonMises
from lucid_gpu.distributions.weibull import Weibull
from lucid_gpu.distributions.wishart import Wishart

_all_named_in_errors(globals(), Distribution)
