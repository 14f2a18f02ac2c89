"""Bessel functions of the orders 0 and 1, and Airy's function, of an array of doubles.

The formulas are those of NIST's Digital Library of Mathematical Functions (dlmf.nist.gov), which
the comments number; each range of arguments has the one that loses no digits there. ``xp`` is the
array module, so that a GPU's arrays stay where they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["airy_ai", "bessel_j", "bessel_k", "bessel_y", "spherical_bessel_j0"]

_EULER = 0.5772156649015329
_FAR = 25.0  # from here on Hankel's expansions have all digits of a double

# The trapezoidal rule over a period has all digits with 64 nodes, of which 32 differ.
_NODES = (np.arange(32) + 0.5) * (np.pi / 64)
_SINES = np.sin(_NODES)
_LOGARITHM = sum((-1) ** k / k * np.cos(2 * k * _NODES) for k in range(1, 33))

_STEP = 0.25
_WIDTHS = np.arange(26) * _STEP  # nodes for exp(-u^2), which vanishes beyond them


def bessel_j(xp: Any, order: int, x: Any) -> Any:
    """The Bessel function of the first kind of order 0 or 1."""
    size = abs(x)
    near = size < _FAR
    at, total = xp.where(near, size, 0.0), 0.0
    for sine in _SINES.tolist():  # 10.9.1
        total = total + (sine * xp.sin(at * sine) if order else xp.cos(at * sine))
    far = _waves(xp, order, xp.where(near, _FAR, size))[0]
    value = xp.where(near, total / len(_SINES), far)
    return xp.where(x < 0, -value, value) if order else value


def bessel_y(xp: Any, order: int, x: Any) -> Any:
    """The Bessel function of the second kind of order 0 or 1."""
    near = (x < _FAR) & (x > 0)
    at, total = xp.where(near, x, 1.0), 0.0
    for sine, weight in zip(_SINES.tolist(), _LOGARITHM.tolist(), strict=True):  # 10.8.2
        total = total + weight * (sine * xp.sin(at * sine) if order else xp.cos(at * sine))
    log = xp.log(at / 2) + _EULER
    value = log * bessel_j(xp, order, at) - total * (2 / len(_SINES))
    if order:
        value = value - bessel_j(xp, 0, at) / at
    far = _waves(xp, order, xp.where(x >= _FAR, x, _FAR))[1]
    value = xp.where(near, value * (2 / math.pi), far)
    return xp.where(x == 0, -math.inf, xp.where(x >= 0, value, math.nan))


def _waves(xp: Any, order: int, x: Any) -> tuple[Any, Any]:
    """J and Y far from 0, by Hankel's expansions: 10.17.3 and 10.17.4."""
    sums, term = [0.0 * x + 1, 0.0 * x], 1.0
    for k in range(1, 28):
        term = term * ((4 * order - (2 * k - 1) ** 2) / (8 * k * x))
        sums[k % 2] = sums[k % 2] + (-term if k // 2 % 2 else term)
    x = xp.where(xp.isinf(x), 0.0, x) if (ends := xp.isinf(x)).any() else x
    sine, cosine = xp.sin(x), xp.cos(x)  # of x - pi/4 by those of x, which is exact
    a, b = (sine - cosine, -sine - cosine) if order else (cosine + sine, sine - cosine)
    scale = xp.where(ends, 0.0, 1 / xp.sqrt(xp.where(ends, 1.0, math.pi * x)))
    return scale * (a * sums[0] - b * sums[1]), scale * (b * sums[0] + a * sums[1])


def bessel_k(xp: Any, order: int, x: Any, scaled: bool) -> Any:
    """The modified Bessel function of the second kind of order 0 or 1; perhaps times ``exp(x)``."""
    near = x <= 2
    at = xp.where(near & (x > 0), x, 1.0)
    half, term = at * at / 4, at / 2 if order else at * 0 + 1
    log, harmonic, total = xp.log(at / 2), -_EULER, 0.0
    for k in range(24):  # 10.31.1
        if order:
            after = harmonic + 1 / (k + 1)
            total = total + term * (log - (harmonic + after) / 2)
            term, harmonic = term * (half / ((k + 1) * (k + 2))), after
        else:
            total = total + term * (harmonic - log)
            term, harmonic = term * (half / (k + 1) ** 2), harmonic + 1 / (k + 1)
    if order:
        total = total + 1 / at
    far, sums = xp.where(near, 2.0, x), 0.0
    for i, u in enumerate(_WIDTHS.tolist()):  # 10.32.9 in u = sqrt(2 x) sinh(t / 2)
        weight = math.exp(-u * u) * (0.5 if i == 0 else 1.0)
        value = 1 / xp.sqrt(1 + u * u / (2 * far))
        sums = sums + weight * (value * (1 + u * u / far) if order else value)
    sums = sums * _STEP * xp.sqrt(2 / far)
    if scaled:
        total = total * xp.exp(at)
    else:
        sums = sums * xp.exp(-far)
    value = xp.where(near, total, sums)
    return xp.where(x == 0, math.inf, xp.where(x > 0, value, math.nan))


# Ai and its derivative at -10, -9 ... 10
_AIRY = np.array([
    [0.04024123848644319, 0.99626504413279],
    [-0.022133721547341403, -0.9756639809263316],
    [-0.0527050503563862, 0.9355609381983065],
    [0.18428083525050565, -0.7710081684101265],
    [-0.3291451736298231, 0.3459354872813429],
    [0.35076100902411433, 0.32719281855444315],
    [-0.07026553294928951, -0.7906285753685813],
    [-0.37881429367765806, 0.3145837692165988],
    [0.22740742820168558, 0.618259020741691],
    [0.5355608832923521, -0.01016056711664521],
    [0.3550280538878172, -0.2588194037928068],
    [0.13529241631288141, -0.1591474412967932],
    [0.03492413042327438, -0.05309038443365363],
    [0.006591139357460719, -0.011912976705951319],
    [0.0009515638512048018, -0.001958640950204179],
    [0.00010834442813607442, -0.0002474138908684625],
    [9.947694360252889e-06, -2.4765200397034955e-05],
    [7.492128863997167e-07, -2.008150894738792e-06],
    [4.6922076160992316e-08, -1.3414392979067865e-07],
    [2.47116843087249e-09, -7.480641389658946e-09],
    [1.1047532552898686e-10, -3.5206336767389237e-10],
])  # fmt: skip


def airy_ai(xp: Any, x: Any) -> Any:
    """Airy's function Ai."""
    middle = abs(x) <= 10.5
    at = xp.where(middle, x, 0.0)
    center = xp.rint(at)
    step, place = at - center, center.astype("int64") + 10
    table = xp.asarray(_AIRY)
    a, b = table[:, 0][place], table[:, 1][place]
    c = center * a / 2
    value, power = a + b * step, step * step
    for k in range(2, 34):  # Taylor's series, whose coefficients 9.2.1 gives
        value = value + c * power
        a, b, c = b, c, (center * b + a) / (k * (k + 1))
        power = power * step
    size = xp.where(middle, 16.0, abs(x))
    root = xp.sqrt(size)
    angle = size * root * (2 / 3)
    even, odd, term, decay = 1.0, 0.0, 1.0, 1.0
    for k in range(1, 28):  # 9.7.2
        term = term * ((6 * k - 5) * (6 * k - 1) / (72 * k * angle))
        decay = decay + (-term if k % 2 else term)
        signed = -term if k // 2 % 2 else term
        even, odd = (even, odd + signed) if k % 2 else (even + signed, odd)
    scale = 1 / (math.sqrt(math.pi) * xp.sqrt(root))
    sine, cosine = xp.sin(angle), xp.cos(angle)
    wave = ((cosine + sine) * even + (sine - cosine) * odd) * math.sqrt(0.5)  # 9.7.9
    outside = xp.where(x > 0, xp.exp(-angle) * decay / 2, wave) * scale  # 9.7.5
    return xp.where(middle, value, outside) + 0 * x  # NaN at both infinities, as in PyTorch


def spherical_bessel_j0(xp: Any, x: Any) -> Any:
    """``sin(x) / x``, and its limits at 0 and infinity."""
    ends = xp.isinf(x)
    at = xp.where(ends | (x == 0), 1.0, x)
    return xp.where(x == 0, 1.0, xp.where(ends, 0.0, xp.sin(at) / at))
