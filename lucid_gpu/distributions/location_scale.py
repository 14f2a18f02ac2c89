"""Distributions by location and scale: normal, Laplace, Cauchy, Gumbel, uniform, von Mises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, ExponentialFamily, Shape
from lucid_gpu.distributions.utils import eps
from lucid_gpu.dtypes import float64
from lucid_gpu.ops.creation import full_like
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.random import rand, randn
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Cauchy", "Gumbel", "Laplace", "LocationScale", "Normal", "Uniform", "VonMises"]


class LocationScale(Distribution):
    """A distribution of the reals moved by ``loc``, where its mode is, and stretched by ``scale``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mode(self) -> Tensor:
        return self.loc


class Normal(LocationScale, ExponentialFamily):
    r"""``p(x) = exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi))``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
        Mean and standard deviation.
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + randn(shape, dtype=self.loc.dtype, device=self.loc.device) * self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def _cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + ((value - self.loc) / self.scale / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.scale**2, -0.5 * self.scale**-2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -0.25 * x * x / y + 0.5 * (-math.pi / y).log()


class Laplace(LocationScale):
    """``p(x) = exp(-|x - loc| / scale) / (2 scale)``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        d = self.loc.dtype
        u = rand(shape, dtype=d, device=self.loc.device) * (2 - eps(d)) + (eps(d) - 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def _log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(LocationScale):
    """``p(x) = 1 / (pi scale (1 + ((x - loc) / scale)^2))``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
        Median and half width at half maximum.
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        """Nan, of shape ``batch_shape``: there is none."""
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """Infinite, of shape ``batch_shape``."""
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        unit = rand(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (math.pi * (unit - 0.5)).tan() * self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (z * z).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


EULER = 0.57721566490153286060  # the Euler-Mascheroni constant


class Gumbel(LocationScale):
    """``p(x) = exp(-z - exp(-z)) / scale`` with ``z = (x - loc) / scale``: the largest of many.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        waiting = self.loc.new_empty(self._extended_shape(sample_shape)).exponential_()
        return self.loc - self.scale * waiting.log()

    def _log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class Uniform(Distribution):
    """``p(x) = 1 / (high - low)`` for ``low <= x < high``.

    Parameters
    ----------
    low, high : float or Tensor, broadcast to batch_shape
        ``low < high``, else ValueError, if validated.
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }
    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, low=low, high=high)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low>= high")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `low` to `high`."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """Nan, of shape ``batch_shape``: all values are alike."""
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        unit = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + unit * (self.high - self.low)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


# Abramowitz and Stegun, 9.8.1 to 9.8.4: of I_0(x) and I_1(x) / x for small x by powers of
# (x / 3.75)^2, and of sqrt(x) exp(-x) I(x) for large ones by powers of 3.75 / x.
_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
)
_LARGE = (
    (0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281)
    + (-0.02057706, 0.02635537, -0.01647633, 0.00392377),
    (0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555)
    + (0.02282967, -0.02895312, 0.01787654, -0.00420059),
)


class VonMises(Distribution):
    """``p(x) = exp(concentration cos(x - loc)) / (2 pi I_0(concentration))``: angles.

    Parameters
    ----------
    loc, concentration : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular one, ``1 - I_1(k) / I_0(k)`` with ``k = concentration``; ``batch_shape``."""
        k = self.concentration
        return 1 - (_log_bessel(k, 1) - _log_bessel(k, 0)).exp()

    def _log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        return k * (value - self.loc).cos() - math.log(2 * math.pi) - _log_bessel(k, 0)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Angles from ``[-pi, pi)`` without gradients, of shape ``sample_shape + batch_shape``.

        By Best and Fisher (Efficient simulation of the von Mises distribution, 1979).
        """
        shape = self._extended_shape(sample_shape)
        with no_grad():
            k = self.concentration.to(float64)
            tau = 1 + (1 + 4 * k**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
            angle = _accepted(k.expand(shape), r.expand(shape))
            turned = self.loc.to(float64) + angle
            return ((turned + math.pi) % (2 * math.pi) - math.pi).to(self.loc.dtype)


def _accepted(k: Tensor, r: Tensor) -> Tensor:
    """Angles from 0, drawn until all are accepted."""
    angle, accepted = k.new_zeros(k.shape), k.new_zeros(k.shape).bool()
    while not accepted.all():
        u1, u2, u3 = rand((3, *k.shape), dtype=k.dtype, device=k.device)
        z = (math.pi * u1).cos()
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        fits = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
        drawn = (u3 - 0.5).sign() * f.clamp(min=-1, max=1).acos()
        angle, accepted = (
            where(fits.logical_and(accepted.logical_not()), drawn, angle),
            fits | accepted,
        )
    return angle


def _log_bessel(x: Tensor, order: int) -> Tensor:
    """``log I(x)`` of order 0 or 1 for positive numbers."""
    small, large = x.clamp(max=3.75), x.clamp(min=3.75)
    near = _polynomial((small / 3.75) ** 2, _SMALL[order]).log()
    near = near + small.log() if order else near
    far = large - 0.5 * large.log() + _polynomial(3.75 / large, _LARGE[order]).log()
    return where(x < 3.75, near, far)


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = c + x * total
    result: Tensor = total
    return result
