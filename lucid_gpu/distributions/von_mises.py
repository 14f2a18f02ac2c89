"""The von Mises distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.dtypes import float64
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.random import rand
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["VonMises"]

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
