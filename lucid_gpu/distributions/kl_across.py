"""Divergences between families: ``KL(p || q) = -H(p) - E[log q(x)]`` for ``x`` of ``p``.

The expectation needs but a few of p's own: its mean and variance, and those of the tables below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucid_gpu.distributions.bernoulli import Bernoulli
from lucid_gpu.distributions.beta import Beta
from lucid_gpu.distributions.binomial import Binomial
from lucid_gpu.distributions.continuous_bernoulli import ContinuousBernoulli
from lucid_gpu.distributions.exponential import Exponential
from lucid_gpu.distributions.gamma import Gamma
from lucid_gpu.distributions.gumbel import EULER, Gumbel
from lucid_gpu.distributions.kl import register_kl
from lucid_gpu.distributions.laplace import Laplace
from lucid_gpu.distributions.normal import Normal
from lucid_gpu.distributions.pareto import Pareto
from lucid_gpu.distributions.poisson import Poisson
from lucid_gpu.distributions.uniform import Uniform
from lucid_gpu.tensor import Tensor

__all__: list[str] = []

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
