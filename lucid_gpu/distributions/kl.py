"""Kullback-Leibler divergences, a closed form for each pair that has one."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from lucid_gpu.autograd import grad
from lucid_gpu.distributions.bernoulli import Bernoulli, ContinuousBernoulli, Geometric
from lucid_gpu.distributions.by_inverse import Pareto
from lucid_gpu.distributions.categorical import Categorical, OneHotCategorical
from lucid_gpu.distributions.composed import Independent, TransformedDistribution
from lucid_gpu.distributions.counts import Binomial, Poisson
from lucid_gpu.distributions.derived import HalfNormal
from lucid_gpu.distributions.dirichlet import Beta, Dirichlet
from lucid_gpu.distributions.distribution import Distribution, ExponentialFamily
from lucid_gpu.distributions.gamma import Exponential, Gamma
from lucid_gpu.distributions.location_scale import EULER, Cauchy, Gumbel, Laplace, Normal, Uniform
from lucid_gpu.distributions.multivariate_normal import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    half_log_det,
    mahalanobis,
)
from lucid_gpu.distributions.utils import sum_rightmost
from lucid_gpu.linalg import solve_triangular
from lucid_gpu.nn import functional as F
from lucid_gpu.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]

Divergence = Callable[[Any, Any], Tensor]
_registered: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """Decorator for the divergence of a pair of types, and of what derives from them.

    Parameters
    ----------
    type_p, type_q : type
        `Distribution` and its subclasses, or another base that some of them have; TypeError for
        what is no class.
    """
    for name, one in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(one, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {one}")

    def register(function: Divergence) -> Divergence:
        _registered[type_p, type_q] = function
        _nearest_form.cache_clear()
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """``KL(p || q)``, the mean of ``log p(x) - log q(x)`` for ``x`` of ``p``.

    Parameters
    ----------
    p, q : Distribution

    Returns
    -------
    Tensor, shape (*batch_shape)
        Of the shape that both batches broadcast to.

    Raises
    ------
    NotImplementedError
        For pairs without a registered form.
    """
    types: Any = (type(p), type(q))
    function = _nearest_form(*types)
    if function is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}"
        )
    return function(p, q)


@functools.cache
def _nearest_form(type_p: Any, type_q: Any) -> Divergence | None:
    """The form registered for the nearest pair of bases."""
    pairs = [(a, b) for a, b in _registered if issubclass(type_p, a) and issubclass(type_q, b)]
    if not pairs:
        return None
    by_p, by_q = type_p.__mro__.index, type_q.__mro__.index
    left = min(pairs, key=lambda pair: (by_p(pair[0]), by_q(pair[1])))
    right = min(pairs, key=lambda pair: (by_q(pair[1]), by_p(pair[0])))
    if _registered[left] is not _registered[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _registered[left]


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    apart = ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + apart - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    one = one.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0.0)
    zero = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    zero = zero.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0.0)
    return one + zero


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    each = p.probs * (p.logits - q.logits)
    return each.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0.0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + apart / q.scale + ratio * (-apart / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    one = (p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2
    return (one / (4 * p.scale * q.scale)).log()


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    of_rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)
    return of_rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    apart = (a - b) * (a.digamma() - total.digamma().unsqueeze(-1))
    return total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma() - apart).sum(-1)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * each).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = (-apart + (1 + ratio).lgamma()).exp()
    return -ratio.log() + apart + ratio * EULER + tail - (1 + EULER)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Tensor:
    """By the factors of both covariances."""
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            "computed"
        )
    n = p.event_shape[0]
    of_p, of_q = p.scale_tril, q.scale_tril
    batch = (half_log_det(of_p) + half_log_det(of_q)).shape
    factors = [f.expand((*batch, n, n)) for f in (of_q, of_p)]
    trace = solve_triangular(factors[0], factors[1], upper=False).square().sum((-2, -1))
    distance = mahalanobis(factors[0], (q.loc - p.loc).expand((*batch, n)))
    return half_log_det(of_q) - half_log_det(of_p) + 0.5 * (trace + distance - n)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(ExponentialFamily, ExponentialFamily)
def _families(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences"
        )
    of_p = [t.detach()._mark() for t in p._natural_params]
    of_q = q._natural_params
    normalizer = p._log_normalizer(*of_p)
    gradients: Any = grad(normalizer.sum(), of_p, create_graph=True)
    result = q._log_normalizer(*of_q) - normalizer
    batch = result.shape
    for a, b, g in zip(of_p, of_q, gradients, strict=True):
        term = (b - a) * g
        result = result - sum_rightmost(term, term.ndim - len(batch))
    return result


# Between families: KL(p || q) = -H(p) - E[log q(x)] for x of p. The expectation needs only p's mean
# and variance, and these two.
# E[log x]
_LOG: dict[type, Callable[[Any], Tensor]] = {
    Exponential: lambda p: -p.rate.log() - EULER,
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Uniform: lambda p: _mean_log(p.low, p.high),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
}
# E[exp(-t x)]
_FALLING: dict[type, Callable[[Any, Tensor], Tensor]] = {
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (p.rate / (p.rate + t)) ** p.concentration,
    Normal: lambda p, t: (0.5 * (p.scale * t) ** 2 - p.loc * t).exp(),
    Uniform: lambda p, t: ((-p.low * t).exp() - (-p.high * t).exp()) / (t * (p.high - p.low)),
}
# What q is that gives no probability to some of p's values.
_INFINITE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _mean_log(low: Tensor, high: Tensor) -> Tensor:
    """Of a uniform variable."""
    return (high.xlogy(high) - low.xlogy(low)) / (high - low) - 1


def _to_normal(p: Any, q: Normal) -> Tensor:
    square = p.variance + (p.mean - q.loc) ** 2
    return 0.5 * (square / q.scale**2 + math.log(2 * math.pi)) + q.scale.log() - p.entropy()


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


def _to_gamma(of_log: Callable[[Any], Tensor]) -> Callable[[Any, Gamma], Tensor]:
    def divergence(p: Any, q: Gamma) -> Tensor:
        a, b = q.concentration, q.rate
        return b * p.mean - (a - 1) * of_log(p) - a * b.log() + a.lgamma() - p.entropy()

    return divergence


def _to_gumbel(falling: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Gumbel], Tensor]:
    def divergence(p: Any, q: Gumbel) -> Tensor:
        tail = (q.loc / q.scale).exp() * falling(p, 1 / q.scale)
        return (p.mean - q.loc) / q.scale + tail + q.scale.log() - p.entropy()

    return divergence


def _infinite(p: Any, q: Any) -> Tensor:
    return p.mean.detach().new_full(p.batch_shape, math.inf)


def _of_uniform(divergence: Callable[[Any, Any], Tensor], most: float = math.inf) -> Any:
    """Infinite where p is not within ``[0, most]``."""

    def within(p: Uniform, q: Any) -> Tensor:
        outside = (p.low < 0).logical_or(p.high > most)
        return divergence(p, q).masked_fill(outside, math.inf)

    return within


def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    scale = a.lgamma() + b.lgamma() - (a + b).lgamma()
    ends = (a - 1) * _mean_log(p.low, p.high) + (b - 1) * _mean_log(1 - p.high, 1 - p.low)
    return scale - ends - p.entropy()


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.mean * q.logits - (-q.probs).log1p() - q._log_scale() - p.entropy()


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    falling = (q.alpha + 1) * _mean_log(p.low, p.high) - q.alpha * q.scale.log()
    return (falling - q.alpha.log() - p.entropy()).masked_fill(p.low < q.scale, math.inf)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return result.masked_fill(p.scale < q.scale, math.inf)


@register_kl(ContinuousBernoulli, Uniform)
@register_kl(Beta, Uniform)
def _to_uniform(p: Any, q: Uniform) -> Tensor:
    outside = (q.low > 0).logical_or(q.high < 1)
    return ((q.high - q.low).log() - p.entropy()).masked_fill(outside, math.inf)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    """With the mean of a folded normal variable."""
    z = (p.loc - q.loc) / p.scale
    folded = math.sqrt(2 / math.pi) * (-0.5 * z * z).exp() + z * (z / math.sqrt(2)).erf()
    return p.scale * folded / q.scale + (2 * q.scale).log() - p.entropy()


_p: type
for _p in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform):
    register_kl(_p, Normal)(_to_normal)
for _p in (Beta, ContinuousBernoulli, Gamma, Pareto):
    register_kl(_p, Exponential)(_to_exponential)
register_kl(Uniform, Exponential)(_of_uniform(_to_exponential))
for _p in (Beta, Exponential, Pareto):
    register_kl(_p, Gamma)(_to_gamma(_LOG[_p]))
register_kl(Uniform, Gamma)(_of_uniform(_to_gamma(_LOG[Uniform])))
for _p in (Beta, ContinuousBernoulli):
    register_kl(_p, ContinuousBernoulli)(_to_continuous_bernoulli)
register_kl(Uniform, ContinuousBernoulli)(_of_uniform(_to_continuous_bernoulli, 1.0))
register_kl(Uniform, Beta)(_of_uniform(_uniform_beta, 1.0))
for _p, _falling in _FALLING.items():
    register_kl(_p, Gumbel)(_to_gumbel(_falling))
for _p, _others in _INFINITE.items():
    for _q in _others:
        register_kl(_p, _q)(_infinite)
