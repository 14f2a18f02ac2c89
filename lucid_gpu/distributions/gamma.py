"""Gamma, exponential, chi-squared, inverse gamma, F and Student's t-distributions."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, ExponentialFamily, Shape
from lucid_gpu.distributions.utils import tiny
from lucid_gpu.ops.creation import as_tensor, zeros_like
from lucid_gpu.ops.draws import standard_gamma
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.incomplete_gamma import igamma, igammac
from lucid_gpu.ops.random import randn
from lucid_gpu.tensor import Tensor

__all__ = ["Chi2", "Exponential", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT"]


class Gamma(ExponentialFamily):
    """``p(x) = rate^a x^(a - 1) exp(-rate x) / gamma(a)`` with ``a = concentration``.

    Gradients of samples are implicit: those at a fixed quantile (Figurnov et al., Implicit
    reparameterization gradients, 2018).

    Parameters
    ----------
    concentration, rate : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Any = constraints.nonnegative
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = standard_gamma(self.concentration.expand(shape)) / self.rate
        return value.clamp(min=tiny(value.dtype))

    def log_prob(self, value: Any) -> Tensor:
        """As in all distributions, and of a number too, as PyTorch's."""
        return super().log_prob(as_tensor(value, dtype=self.rate.dtype, device=self.rate.device))

    def _log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return a.xlogy(rate) + (a - 1).xlogy(value) - rate * value - a.lgamma()

    def _cdf(self, value: Tensor) -> Tensor:
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Exponential(ExponentialFamily):
    """``p(x) = rate exp(-rate x)``.

    Parameters
    ----------
    rate : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return -(-natural_params[0]).log()


class Chi2(Gamma):
    """The sum of ``df`` squares of standard normal ones: a gamma distribution of ``df / 2``, 1/2.

    Parameters
    ----------
    df : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.concentration, new.rate = (
            self.concentration.expand(batch_shape),
            self.rate.expand(batch_shape),
        )
        return new

    @property
    def df(self) -> Tensor:
        """The degrees of freedom, of shape ``batch_shape``."""
        return self.concentration * 2


class InverseGamma(Distribution):
    """``1 / x`` for a gamma ``x``: ``p(y) = rate^a y^(-a - 1) exp(-rate / y) / gamma(a)``.

    Parameters
    ----------
    concentration, rate : float or Tensor, broadcast to batch_shape
        Those of ``x``; ``a`` is the first.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def base_dist(self) -> Gamma:
        """That of ``x``."""
        return Gamma(self.concentration, self.rate, validate_args=False)

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return (self.rate / (a - 1)).masked_fill(a <= 1, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return (self.rate**2 / ((a - 1) ** 2 * (a - 2))).masked_fill(a <= 2, math.inf)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).reciprocal()

    def _log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return a * rate.log() - (a + 1) * value.log() - rate / value - a.lgamma()

    def _cdf(self, value: Tensor) -> Tensor:
        return igammac(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared ones, each divided by its degrees of freedom.

    Parameters
    ----------
    df1, df2 : float or Tensor, broadcast to batch_shape
        The degrees of freedom above and below.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        n = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return n / (n - 2)

    @property
    def mode(self) -> Tensor:
        m, n = self.df1, self.df2
        return ((m - 2) / m * n / (n + 2)).masked_fill(m <= 2, math.nan)

    @property
    def variance(self) -> Tensor:
        m, n = self.df1, self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * n**2 * (m + n - 2) / (m * (n - 2) ** 2 * (n - 4))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        above, below = (
            Gamma(df / 2, df, validate_args=False).rsample(sample_shape)
            for df in (self.df1, self.df2)
        )
        return (above / below).clamp(min=tiny(below.dtype))

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        scale = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return scale + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()


class StudentT(Distribution):
    """``loc + scale * x / sqrt(z / df)`` for standard normal ``x``, chi-squared ``z``.

    Parameters
    ----------
    df : float or Tensor, broadcast to batch_shape
        Degrees of freedom.
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Any = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df - 2)
        known = where(self.df > 2, finite, math.inf)
        return known.masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x = randn(shape, dtype=self.df.dtype, device=self.df.device)
        z = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * x * (z / self.df).rsqrt()

    def _log_prob(self, value: Tensor) -> Tensor:
        y = (value - self.loc) / self.scale
        half = 0.5 * self.df
        normalizer = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
        normalizer = normalizer + half.lgamma() - (half + 0.5).lgamma()
        return -0.5 * (self.df + 1.0) * (y**2 / self.df).log1p() - normalizer

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        beta = half.lgamma() + math.lgamma(0.5) - (0.5 + half).lgamma()
        slope = (0.5 * (self.df + 1)).digamma() - half.digamma()
        return self.scale.log() + 0.5 * (self.df + 1) * slope + 0.5 * self.df.log() + beta
