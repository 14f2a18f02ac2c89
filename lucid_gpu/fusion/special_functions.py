"""Special functions of the op table by NumPy, imported when one is first computed.

Gamma family: S. L. Moshier's Cephes library (asymptotic series, after recurrence to large
arguments and reflection of negative ones; `zeta` by Euler and Maclaurin's formula). Quantiles of
the normal distribution: M. J. Wichura, "Algorithm AS 241", Applied Statistics 37 (1988). Bessel
functions: Abramowitz and Stegun, 9.6.10 and 9.7.1. All is in float64; `kernels/special.cuh` has
the same in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_PI = np.pi


def _horner(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, its lowest coefficient first."""
    total = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total *= x
        total += c
    return total


def _double(x: Any) -> Any:
    return np.array(x, np.float64, ndmin=1)


def _store(value: Any, out: Any) -> None:
    np.copyto(out, value.reshape(out.shape), casting="same_kind")


# fmt: off
_NEAR = ((-8.53555664245765465627e5, -1.72173700820839662146e6, -1.16237097492762307383e6,
          -3.31612992738871184744e5, -3.88016315134637840924e4, -1.37825152569120859100e3),
         (-2.01889141433532773231e6, -2.53252307177582951285e6, -1.13933444367982507207e6,
          -2.20528590553854454839e5, -1.70642106651881159223e4, -3.51815701436523470549e2, 1.0))
_STIRLING = (8.33333333333331927722e-2, -2.77777777730099687205e-3, 7.93650340457716943945e-4,
             -5.95061904284301438324e-4, 8.11614167470508450300e-4)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_TRIGAMMA = (1.0, 1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_ZETA = (12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
         -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
         1.8152105401943546773e17, -7.1661652561756670113e18)
_MIDDLE = ((3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3,
            1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
            3.3430575583588128105e4, 2.5090809287301226727e3),
           (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
            2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
            5.2264952788528545610e3))
_TAIL = ((1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550,
          3.64784832476320460504, 1.27045825245236838258, 2.41780725177450611770e-1,
          2.27238449892691845833e-2, 7.74545014278341407640e-4),
         (1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
          1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
          1.05075007164441684324e-9))
_FAR = ((6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
         2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
         2.71155556874348757815e-5, 2.01033439929228813265e-7),
        (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
         2.04426310338993978564e-15))
# fmt: on
_HALF_LOG_2PI = 0.91893853320467274178


_TINY = 1e-150  # where lgamma(x) is -log(x) to all digits


def lgamma(x: Any, out: Any) -> None:
    """The logarithm of ``|gamma(x)|``."""
    x = _double(x)
    negative = x < 0
    value = _lgamma_of_positive(np.where(negative, 1 - x, np.abs(x)))
    if negative.any():
        sine = np.abs(np.sin(_PI * (x - np.rint(x))))
        value = np.where(negative, np.log(_PI) - np.log(sine) - value, value)
    tiny = np.abs(x) < _TINY  # whose reciprocal may be infinite
    if tiny.any():
        value = np.where(tiny, -np.log(np.abs(x)), value)
    value[np.isinf(x)] = np.inf
    _store(value, out)


def _lgamma_of_positive(x: Any) -> Any:
    """Near [2, 3) by a rational function, beyond 13 by Stirling's series."""
    large = x >= 13
    u, factor = np.where(large, 2.0, x), np.ones_like(x)
    for _ in range(10):
        high = u >= 3
        u = np.where(high, u - 1, u)
        factor = np.where(high, factor * u, factor)
    for _ in range(2):
        low = u < 2
        factor = np.where(low, factor / u, factor)
        u = np.where(low, u + 1, u)
    u -= 2
    near = np.log(factor) + u * _horner(u, _NEAR[0]) / _horner(u, _NEAR[1])
    v = np.where(large, x, 13.0)
    far = (v - 0.5) * np.log(v) - v + _HALF_LOG_2PI + _horner(1 / (v * v), _STIRLING) / v
    return np.where(large, far, near)


def digamma(x: Any, out: Any) -> None:
    """The derivative of `lgamma`."""
    x = _double(x)
    zero, negative = x == 0, x < 0
    pole = negative & (x == np.floor(x))
    value = np.where(negative, -_PI / np.tan(_PI * (x - np.rint(x))), 0.0)
    end = np.copysign(np.inf, -x)
    x = np.where(negative, 1 - x, x)
    for _ in range(10):
        low = x < 10
        value = np.where(low, value - 1 / x, value)
        x = np.where(low, x + 1, x)
    z = 1 / (x * x)
    value += np.log(x) - 0.5 / x - z * _horner(z, _DIGAMMA)
    value[pole] = np.nan
    _store(np.where(zero, end, value), out)


def trigamma(x: Any, out: Any) -> None:
    """The derivative of `digamma`."""
    x = _double(x)
    low = x < 0.5
    value = np.where(low, -((_PI / np.sin(_PI * (x - np.rint(x)))) ** 2), 0.0)
    x = np.where(low, 1 - x, x)
    for _ in range(10):
        small = x < 10
        value = np.where(small, value + 1 / (x * x), value)
        x = np.where(small, x + 1, x)
    z = 1 / (x * x)
    value += _horner(z, _TRIGAMMA) / x + z / 2
    _store(np.where(low, -value, value), out)


def zeta(s: Any, q: Any, out: Any) -> None:
    """Hurwitz's zeta function, the sum of ``(q + k)**-s`` over ``k >= 0``."""
    s, q = np.broadcast_arrays(_double(s), _double(q))
    whole = (q <= 0) & (q == np.floor(q))
    none = ~(s > 1) | np.isnan(q) | ((q <= 0) & ((s != np.floor(s)) | (q < -10000)))
    at = np.where(whole | none, 1.0, q)
    total, power = np.zeros_like(at), at**-s
    for i in range(9 + int(max(0.0, 1 - at.min(initial=1.0)))):
        more = np.logical_or(i < 9, at <= 9)
        total += np.where(more, power, 0.0)
        at = np.where(more, at + 1, at)
        power = at**-s
    total += np.where(power == 0, 0.0, power * at / (s - 1) + power / 2)
    term = power
    for k, divisor in enumerate(_ZETA):
        term = np.where(power == 0, 0.0, term * (s + 2 * k) / at)
        total += term / divisor
        term = term * (s + 2 * k + 1) / at
    total[none] = np.nan
    total[(whole & (s > 1)) | (s == 1)] = np.inf
    _store(total, out)


def ndtri(p: Any, out: Any) -> None:
    """The quantile of the standard normal distribution."""
    p = _double(p)
    _store(_quantile(p - 0.5, np.where(p < 0.5, p, 1 - p)), out)


def erfinv(y: Any, out: Any) -> None:
    """The inverse of the error function."""
    y = _double(y)
    _store(np.sqrt(0.5) * _quantile(y / 2, (1 - np.abs(y)) / 2), out)


def _quantile(q: Any, tail: Any) -> Any:
    """The normal quantile at ``1/2 + q``, whose smaller tail is given."""
    z = 0.180625 - np.clip(q * q, 0, 0.180625)
    middle = q * _horner(z, _MIDDLE[0]) / _horner(z, _MIDDLE[1])
    far = np.sqrt(-np.log(np.where(tail > 0, tail, 0.5)))
    near, beyond = np.minimum(far, 5.0) - 1.6, np.maximum(far, 5.0) - 5
    size = np.where(
        far <= 5,
        _horner(near, _TAIL[0]) / _horner(near, _TAIL[1]),
        _horner(beyond, _FAR[0]) / _horner(beyond, _FAR[1]),
    )
    size = np.where(tail > 0, size, np.where(tail == 0, np.inf, np.nan))
    return np.where(np.abs(q) <= 0.425, middle, np.copysign(size, q))


def _scaled_bessel(x: Any, order: int) -> Any:
    """``exp(-x)`` times the modified Bessel function of order 0 or 1, for ``x >= 0``.

    The power series up to 20, the asymptotic one beyond, each as nested products.
    """
    near, far = np.minimum(x, 20.0), np.maximum(x, 20.0)
    series, beyond = np.ones_like(x), np.ones_like(x)
    for k in range(40, 0, -1):
        series *= near * near / (4 * k * (k + order))
        series += 1
    for k in range(30, 0, -1):
        beyond *= ((2 * k - 1) ** 2 - 4 * order) / (8 * k * far)
        beyond += 1
    series *= np.exp(-near)
    if order:
        series *= near / 2
    beyond /= np.sqrt(2 * _PI) * np.sqrt(far)
    return np.where(x < 20, series, beyond)


def _bessel(x: Any, order: int) -> Any:
    """The function itself; ``exp(x)`` alone would be infinite too soon."""
    x = np.minimum(x, 1000.0)
    half = np.exp(x / 2)
    return half * _scaled_bessel(x, order) * half


def i0(x: Any, out: Any) -> None:
    """The modified Bessel function of order 0."""
    _store(_bessel(np.abs(_double(x)), 0), out)


def i0e(x: Any, out: Any) -> None:
    """``exp(-|x|)`` times that of order 0."""
    _store(_scaled_bessel(np.abs(_double(x)), 0), out)


def i1(x: Any, out: Any) -> None:
    """The modified Bessel function of order 1."""
    x = _double(x)
    _store(np.copysign(_bessel(np.abs(x), 1), x), out)


def i1e(x: Any, out: Any) -> None:
    """``exp(-|x|)`` times that of order 1."""
    x = _double(x)
    _store(np.copysign(_scaled_bessel(np.abs(x), 1), x), out)


def entr(x: Any, out: Any) -> None:
    """``-x * log(x)``: 0 at 0, minus infinity below."""
    value = np.where(x < 0, -np.inf, x)  # 0 and NaN stay
    np.copyto(out, np.where(x > 0, -x * np.log(x), value), casting="same_kind")


def xlogy(x: Any, y: Any, out: Any) -> None:
    """``x * log(y)``, and 0 where x is."""
    value = np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y))
    np.copyto(out, value, casting="same_kind")
