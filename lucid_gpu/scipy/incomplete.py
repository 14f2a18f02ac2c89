"""Derivatives of the incomplete gamma and beta functions, and Student's, by their parameters.

Each is the integral of the density's derivative over its tail: in the logarithm of ``t``, or of
``t / (1 - t)``, the density is log-concave, so that Gauss-Legendre nodes, dense beside the limit,
have it to rounding. From the nodes on all is a composition, which can be differentiated again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.ops.elementwise import where
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

DROP = 40.0  # exp(-40) is 4e-18: the rest of a tail


@functools.cache
def _rule() -> tuple[list[float], list[float]]:
    """Return nodes and weights on [0, 1], as the squares of Gauss's: features lie beside 0."""
    x, weights = np.polynomial.legendre.leggauss(48)
    u = (x + 1) / 2
    return list(u**2), list(weights * u)


def _tail(phi: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes on a last axis from 0 to where the convex function `phi` is 40, and weights.

    `phi` gives its value and its slope; `start` lies beyond the end, or one step leads there.
    """
    with no_grad():
        end = start.detach()
        for _ in range(5):  # near suffices
            value, slope = phi(end)
            end = end - (value - DROP) / slope
        end = end.unsqueeze(-1)
        nodes, weights = _rule()
        return end * end.new_tensor(nodes), end * end.new_tensor(weights)


def gamma_slope(a: Tensor, x: Tensor) -> Tensor:
    """Return the derivative by `a` of the regularized lower function (DLMF 8.2.4) at `x`."""
    kept, (a, x) = x.dtype, (a.to(dt.float64), x.to(dt.float64))
    edge = (x == 0).logical_or(x == math.inf)
    x = where(edge, 1.0, x)
    above = x > a + 1
    sign = where(above, 1.0, -1.0).to(dt.float64)  # integrate over the tail that is away from a
    p = where(above, a, a + 1)  # below, P(a, x) = P(a + 1, x) + T (DLMF 8.8.5)
    p0, x0 = p.detach(), x.detach()

    def phi(w: Tensor) -> tuple[Tensor, Tensor]:
        rise = (sign * w).expm1()
        return x0 * rise - sign * p0 * w, sign * (x0 * (rise + 1) - p0)

    far = 2 * DROP / x0
    near = where(above, where(x0 > 1, far**0.5, far.log1p() + 1), _reach(p0))
    w, weights = _tail(phi, near)
    log_x, p_, x_, sign = x.log(), p.unsqueeze(-1), x.unsqueeze(-1), sign.unsqueeze(-1)
    density = (sign * p_ * w - x_ * (sign * w).expm1()).exp() * weights
    scale = (p * log_x - x - p.lgamma()).exp()
    factor = log_x.unsqueeze(-1) + sign * w - p_.digamma()
    inner = -sign.squeeze(-1) * scale * (density * factor).sum(-1)
    step = (a * log_x - x - p.lgamma()).exp() * (log_x - p.digamma())
    return where(edge, 0.0, where(above, inner, inner + step)).to(kept)


def _reach(p: Tensor) -> Tensor:
    """Return a solution, or more, of ``p * (w - 1 + exp(-w)) = 40``."""
    return DROP / p + (2 * DROP / p) ** 0.5


def beta_slopes(a: Tensor, b: Tensor, log_x: Tensor, log_y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives by `a` and `b` of the regularized function (DLMF 8.17.2) at x.

    The point is given by the logarithms of x and of 1 - x.
    """
    kept = a.dtype
    a, b, log_x, log_y = [t.to(dt.float64) for t in (a, b, log_x, log_y)]
    edge = (log_x == -math.inf).logical_or(log_y == -math.inf)
    log_x, log_y = [where(edge, -math.log(2.0), t) for t in (log_x, log_y)]
    above = log_x.exp() * (a + b + 2) > a + 1
    p, q, log_p = where(above, b, a), where(above, a, b), where(above, log_y, log_x)
    by_p, by_q = _lower_beta(p, q, log_p, where(above, log_x, log_y))
    slopes = where(above, -by_q, by_p), where(above, -by_p, by_q)
    return where(edge, 0.0, slopes[0]).to(kept), where(edge, 0.0, slopes[1]).to(kept)


def _lower_beta(p: Tensor, q: Tensor, log_x: Tensor, log_y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the slopes by `p` and `q` of the integral below x, where that is the smaller tail."""
    up, total = p + 1, p + q + 1  # I(p, q) = I(p + 1, q) + T (DLMF 8.17.20)
    p0, total0, x0 = up.detach(), total.detach(), log_x.detach().exp()

    def phi(w: Tensor) -> tuple[Tensor, Tensor]:
        rest = x0 * (-w).expm1()
        return p0 * w + total0 * rest.log1p(), p0 - total0 * (x0 + rest) / (1 + rest)

    w, weights = _tail(phi, _reach(p0) + (total0 / p0).log())
    bend = (log_x.exp().unsqueeze(-1) * (-w).expm1()).log1p()  # logit(t) is logit(x) - w
    density = (-up.unsqueeze(-1) * w - total.unsqueeze(-1) * bend).exp() * weights
    base = up.lgamma() + q.lgamma()
    scale = (up * log_x + q * log_y + total.lgamma() - base).exp()
    step = (p * log_x + q * log_y + (p + q).lgamma() - base).exp()

    def slope(log_t: Tensor, log_end: Tensor, shape: Tensor) -> Tensor:
        factor = log_t + (total.digamma() - shape.digamma()).unsqueeze(-1)
        end = log_end + (p + q).digamma() - shape.digamma()
        return scale * (density * factor).sum(-1) + step * end

    by_p = slope(log_x.unsqueeze(-1) - w - bend, log_x, up)
    return by_p, slope(log_y.unsqueeze(-1) - bend, log_y, q)


def t_log_density(df: Tensor, t: Tensor) -> Tensor:
    """Return the logarithm of the density of Student's distribution of `df` degrees at `t`."""
    half = df / 2
    log_scale = (half + 0.5).lgamma() - half.lgamma() - (df * math.pi).log() / 2
    return log_scale - (half + 0.5) * (t * t / df).log1p()


def t_density(df: Tensor, t: Tensor) -> Tensor:
    """Return the density of Student's distribution of `df` degrees of freedom at `t`."""
    return t_log_density(df, t).exp()


def t_slope(df: Tensor, t: Tensor) -> Tensor:
    """Return the derivative by `df`: the beta function's (DLMF 8.17.2), and that by its scale."""
    square = t * t / df
    by_half = beta_slopes(t * 0 + 0.5, df / 2, -(1 / square).log1p(), -square.log1p())[1]
    return t.sign() * by_half / 4 - t * t_density(df, t) / (2 * df)
