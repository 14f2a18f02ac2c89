"""`scipy.stats` with derivatives: distributions, by values and by parameters.

A line of the table has the formulas of the standard distribution, as SciPy's documentation states
them, in functions of `lucid_gpu.scipy.special`.

Examples
--------
>>> import lucid_gpu.numpy as np
>>> from lucid_gpu.scipy import stats
>>> slope = np.grad(lambda a: stats.gamma.cdf(2.0, a))
>>> round(float(slope(1.5)), 6)
-0.277434
"""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.ops.elementwise import where
from lucid_gpu.scipy import special
from lucid_gpu.scipy.distributions import Law, continuous, discrete
from lucid_gpu.scipy.incomplete import t_log_density
from lucid_gpu.scipy.multivariate import (
    dirichlet,
    gaussian_kde,
    multinomial,
    multivariate_normal,
)
from lucid_gpu.scipy.rows import others
from lucid_gpu.tensor import Tensor

_LOG_ROOT_TWO_PI = math.log(2 * math.pi) / 2
_LOG_TWO = math.log(2.0)
_ABOVE: Any = {"low": 0.0, "inner": 1.0}
_UNIT: Any = {"low": 0.0, "high": 1.0, "inner": 0.5}

norm = continuous(
    "norm",
    Law(
        "",
        lambda x: -x * x / 2 - _LOG_ROOT_TWO_PI,
        special.ndtr,
        special.ndtri,
        logcdf=special.log_ndtr,
    ),
)
t = continuous(
    "t",
    Law(
        "df",
        lambda x, df: t_log_density(df, x),
        lambda x, df: special.stdtr(df, x),
        lambda q, df: where(q == 0, -math.inf, special.stdtrit(df, q)),  # SciPy 1.17's is +inf
    ),
)
gamma = continuous(
    "gamma",
    Law(
        "a",
        lambda x, a: special.xlogy(a - 1, x) - x - special.gammaln(a),
        lambda x, a: special.gammainc(a, x),
        lambda q, a: special.gammaincinv(a, q),
        sf=lambda x, a: special.gammaincc(a, x),
        isf=lambda q, a: special.gammainccinv(a, q),
        **_ABOVE,
    ),
)
beta = continuous(
    "beta",
    Law(
        "a b",
        lambda x, a, b: special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b),
        lambda x, a, b: special.betainc(a, b, x),
        lambda q, a, b: special.betaincinv(a, b, q),
        sf=lambda x, a, b: special.betaincc(a, b, x),
        isf=lambda q, a, b: 1 - special.betaincinv(b, a, q),
        **_UNIT,
    ),
)
chi2 = continuous(
    "chi2",
    Law(
        "df",
        lambda x, df: special.xlogy(df / 2 - 1, x / 2) - x / 2 - special.gammaln(df / 2) - _LOG_TWO,
        lambda x, df: special.gammainc(df / 2, x / 2),
        lambda q, df: 2 * special.gammaincinv(df / 2, q),
        sf=lambda x, df: special.gammaincc(df / 2, x / 2),
        isf=lambda q, df: 2 * special.gammainccinv(df / 2, q),
        **_ABOVE,
    ),
)
expon = continuous(
    "expon",
    Law(
        "",
        lambda x: -x,
        lambda x: -(-x).expm1(),
        lambda q: -(-q).log1p(),
        sf=lambda x: (-x).exp(),
        logsf=lambda x: -x,
        isf=lambda q: -q.log(),
        **_ABOVE,
    ),
)


def _laplace_cdf(x: Tensor) -> Tensor:
    tail = (-x.abs()).exp() / 2
    return where(x > 0, 1 - tail, tail)


laplace = continuous(
    "laplace",
    Law(
        "",
        lambda x: -x.abs() - _LOG_TWO,
        _laplace_cdf,
        lambda q: where(q < 0.5, (2 * q).log(), -(2 * (1 - q)).log()),
        logcdf=lambda x: where(x > 0, (-(-x.abs()).exp() / 2).log1p(), x - _LOG_TWO),
    ),
)


def _cotangent(q: Tensor) -> Tensor:
    return (math.pi * q).cos() / (math.pi * q).sin()


cauchy = continuous(
    "cauchy",
    Law(
        "",
        lambda x: -(x * x).log1p() - math.log(math.pi),
        lambda x: x.new_ones(x.shape).atan2(-x) / math.pi,
        lambda q: where(q < 0.5, -_cotangent(q), _cotangent(1 - q)),
    ),
)
lognorm = continuous(
    "lognorm",
    Law(
        "s",
        lambda x, s: -((x.log() / s) ** 2) / 2 - (s * x).log() - _LOG_ROOT_TWO_PI,
        lambda x, s: special.ndtr(x.log() / s),
        lambda q, s: (s * special.ndtri(q)).exp(),
        sf=lambda x, s: special.ndtr(-x.log() / s),
        logcdf=lambda x, s: special.log_ndtr(x.log() / s),
        logsf=lambda x, s: special.log_ndtr(-x.log() / s),
        isf=lambda q, s: (-s * special.ndtri(q)).exp(),
        low=5e-324,  # 0, where there is no logarithm, lies outside
        inner=1.0,
    ),
)
logistic = continuous(
    "logistic",
    Law(
        "",
        lambda x: special.log_expit(x) + special.log_expit(-x),
        special.expit,
        special.logit,
        logcdf=special.log_expit,
    ),
)
uniform = continuous(
    "uniform",
    Law(
        "",
        lambda x: x * 0,
        lambda x: x,
        lambda q: q,
        sf=lambda x: 1 - x,
        isf=lambda q: 1 - q,
        **_UNIT,
    ),
)
poisson = discrete(
    "poisson",
    Law(
        "mu",
        lambda k, mu: special.xlogy(k, mu) - mu - special.gammaln(k + 1),
        special.pdtr,
        None,
        sf=special.pdtrc,
        low=0.0,
        valid=lambda mu: mu >= 0,
    ),
)


def _choices(k: Tensor, n: Tensor) -> Tensor:
    log: Tensor = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return log


binom = discrete(
    "binom",
    Law(
        "n p",
        lambda k, n, p: _choices(k, n) + special.xlogy(k, p) + special.xlog1py(n - k, -p),
        lambda k, n, p: special.betaincc(k + 1, n - k, p),
        None,
        sf=lambda k, n, p: special.betainc(k + 1, n - k, p),
        low=0.0,
        high=lambda n, p: n,
        valid=lambda n, p: (n >= 0).logical_and(p >= 0).logical_and(p <= 1),
    ),
)
bernoulli = discrete(
    "bernoulli",
    Law(
        "p",
        lambda k, p: special.xlogy(k, p) + special.xlog1py(1 - k, -p),
        lambda k, p: 1 - p,
        None,
        sf=lambda k, p: p,
        low=0.0,
        high=1.0,
        valid=lambda p: (p >= 0).logical_and(p <= 1),
    ),
)

__all__ = ["bernoulli", "beta", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma"]
__all__ += ["gaussian_kde", "laplace", "logistic", "lognorm", "multinomial", "multivariate_normal"]
__all__ += ["norm", "poisson", "t", "uniform"]

__getattr__ = others("stats", globals())
