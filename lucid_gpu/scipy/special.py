"""`scipy.special` with derivatives.

One line is one function: its derivatives are written in functions of this module, so that they
have derivatives too. The numbers are those of the Digital Library of Mathematical Functions.
"""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu import special as ops
from lucid_gpu.ops.elementwise import where
from lucid_gpu.scipy.incomplete import beta_slopes, gamma_slope, t_density, t_slope
from lucid_gpu.scipy.rows import ROWS, composed, elementwise, floats, others, written
from lucid_gpu.scipy.sums import log_softmax, logsumexp, softmax
from lucid_gpu.tensor import Tensor

_POLES = "not 0 nor a negative integer"
_POSITIVE = "positive numbers"
_POSITIVE_X = "x > 0"

# --- gamma and beta functions: DLMF 5 -------------------------------------------------------------
gamma: Any = elementwise("special.gamma", "x", {"x": lambda x: gamma(x) * psi(x)}, _POLES)  # 5.2.2
gammaln: Any = written("special.gammaln", "x", ops.gammaln, _POLES)
loggamma: Any = elementwise("special.loggamma", "x", {"x": lambda x: psi(x)}, _POSITIVE)
digamma: Any = written("special.digamma", "x", ops.digamma, _POSITIVE)
psi: Any = written("special.psi", "x", ops.digamma, _POSITIVE)
polygamma: Any = elementwise(
    "special.polygamma", "n x", {"x": lambda n, x: polygamma(n + 1, x)}, _POSITIVE_X  # 5.15.1
)  # fmt: skip
rgamma: Any = elementwise("special.rgamma", "x", {"x": lambda x: -psi(x) * rgamma(x)}, _POLES)
gammasgn: Any = elementwise("special.gammasgn", "x", {"x": lambda x: x.new_zeros(x.shape)}, _POLES)
poch: Any = elementwise(  # 5.2.5
    "special.poch",
    "z m",
    {
        "z": lambda z, m: poch(z, m) * (psi(z + m) - psi(z)),
        "m": lambda z, m: poch(z, m) * psi(z + m),
    },
    "z > 0, z + m > 0",
)
binom: Any = elementwise(  # 1.2.6
    "special.binom",
    "n k",
    {
        "n": lambda n, k: binom(n, k) * (psi(n + 1) - psi(n - k + 1)),
        "k": lambda n, k: binom(n, k) * (psi(n - k + 1) - psi(k + 1)),
    },
    "-1 < k < n + 1",
)


@composed("special", "a > (d - 1) / 2")
def multigammaln(a: Any, d: int) -> Any:
    """Return the logarithm of the gamma function of `d` dimensions of each element of `a`."""
    return ops.multigammaln(floats("special.multigammaln", {"a": a})[0], d)


def _log_gamma_density(a: Tensor, x: Tensor) -> Tensor:
    return ops.xlogy(a - 1, x) - x - ops.gammaln(a)


def _gamma_density(a: Tensor, x: Tensor) -> Tensor:
    return _log_gamma_density(a, x).exp()


gammainc: Any = elementwise(
    "special.gammainc", "a x", {"a": gamma_slope, "x": _gamma_density}, "a > 0, x > 0"  # 8.2.4
)  # fmt: skip
gammaincc: Any = elementwise(
    "special.gammaincc",
    "a x",
    {"a": lambda a, x: -gamma_slope(a, x), "x": lambda a, x: -_gamma_density(a, x)},
    "a > 0, x > 0",
)


def _gamma_inverse(name: str, sign: int) -> Any:
    def by_a(a: Tensor, y: Tensor) -> Tensor:
        x = inverse(a, y)
        return -gamma_slope(a, x) / _gamma_density(a, x)

    def by_y(a: Tensor, y: Tensor) -> Tensor:
        return sign * (-_log_gamma_density(a, inverse(a, y))).exp()

    inverse = elementwise(f"special.{name}", "a y", {"a": by_a, "y": by_y}, "a > 0, 0 < y < 1")
    return inverse


gammaincinv, gammainccinv = _gamma_inverse("gammaincinv", 1), _gamma_inverse("gammainccinv", -1)
beta: Any = elementwise(  # 5.12.1
    "special.beta",
    "a b",
    {
        "a": lambda a, b: beta(a, b) * (psi(a) - psi(a + b)),
        "b": lambda a, b: beta(a, b) * (psi(b) - psi(a + b)),
    },
    _POSITIVE,
)
betaln: Any = elementwise(
    "special.betaln",
    "a b",
    {"a": lambda a, b: psi(a) - psi(a + b), "b": lambda a, b: psi(b) - psi(a + b)},
    _POSITIVE,
)


def _log_beta_density(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    log_density: Tensor = ops.xlogy(a - 1, x) + ops.xlog1py(b - 1, -x) - betaln(a, b)
    return log_density


def _beta_slopes(a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return beta_slopes(a, b, x.log(), (-x).log1p())


def _beta_integral(name: str, sign: int) -> Any:  # 8.17.2
    slopes = {
        "a": lambda a, b, x: sign * _beta_slopes(a, b, x)[0],
        "b": lambda a, b, x: sign * _beta_slopes(a, b, x)[1],
        "x": lambda a, b, x: sign * _log_beta_density(a, b, x).exp(),
    }
    return elementwise(f"special.{name}", "a b x", slopes, "a > 0, b > 0, 0 < x < 1")


betainc, betaincc = _beta_integral("betainc", 1), _beta_integral("betaincc", -1)


def _beta_inverse_slope(place: int, a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    x = betaincinv(a, b, y)
    return -_beta_slopes(a, b, x)[place] * (-_log_beta_density(a, b, x)).exp()


betaincinv: Any = elementwise(
    "special.betaincinv",
    "a b y",
    {
        "a": lambda *operands: _beta_inverse_slope(0, *operands),
        "b": lambda *operands: _beta_inverse_slope(1, *operands),
        "y": lambda a, b, y: (-_log_beta_density(a, b, betaincinv(a, b, y))).exp(),
    },
    "a > 0, b > 0, 0 < y < 1",
)

# --- distribution functions -----------------------------------------------------------------------
ndtr: Any = written("special.ndtr", "x", ops.ndtr)
log_ndtr: Any = written("special.log_ndtr", "x", ops.log_ndtr)
ndtri: Any = written("special.ndtri", "x", ops.ndtri, "0 < x < 1")
chdtr: Any = written("special.chdtr", "v x", lambda v, x: gammainc(v / 2, x / 2), "v > 0, x > 0")
chdtrc: Any = written("special.chdtrc", "v x", lambda v, x: gammaincc(v / 2, x / 2), "v > 0, x > 0")
fdtr: Any = written(
    "special.fdtr",
    "dfn dfd x",
    lambda m, n, x: betainc(m / 2, n / 2, m * x / (n + m * x)),
    _POSITIVE,
)
fdtrc: Any = written(
    "special.fdtrc", "dfn dfd x", lambda m, n, x: betainc(n / 2, m / 2, n / (n + m * x)), _POSITIVE
)
stdtr: Any = elementwise(
    "special.stdtr", "df t", {"df": t_slope, "t": t_density}, "df > 0; by df twice: t not 0"
)
stdtrit: Any = elementwise(
    "special.stdtrit",
    "df p",
    {
        "df": lambda df, p: -t_slope(df, stdtrit(df, p)) / t_density(df, stdtrit(df, p)),
        "p": lambda df, p: 1 / t_density(df, stdtrit(df, p)),
    },
    "df > 0, 0 < p < 1; by df twice: p not 1/2",
)


def _poisson(k: Tensor, m: Tensor) -> Tensor:
    return _gamma_density(k.floor() + 1, m)


pdtr: Any = elementwise("special.pdtr", "k m", {"m": lambda k, m: -_poisson(k, m)}, "m > 0")
pdtrc: Any = elementwise("special.pdtrc", "k m", {"m": _poisson}, "m > 0")

# --- error functions: DLMF 7 ----------------------------------------------------------------------
erf: Any = written("special.erf", "x", ops.erf)
erfc: Any = written("special.erfc", "x", ops.erfc)
erfcx: Any = written("special.erfcx", "x", ops.erfcx)
erfinv: Any = written("special.erfinv", "x", ops.erfinv, "-1 < x < 1")
erfcinv: Any = elementwise(
    "special.erfcinv",
    "x",
    {"x": lambda x: -math.sqrt(math.pi) / 2 * (erfcinv(x) ** 2).exp()},
    "0 < x < 2",
)
dawsn: Any = elementwise("special.dawsn", "x", {"x": lambda x: 1 - 2 * x * dawsn(x)})  # 7.10.4

# --- Bessel functions: DLMF 10 --------------------------------------------------------------------


def _bessel(name: str, operands: str, slope: Any, domain: str, kind: str) -> Any:
    of = f"the {kind} of order `{operands[0]}` at `{operands[-1]}`"
    return elementwise(f"special.{name}", operands, {operands[-1]: slope}, domain, of)


_FIRST, _SECOND = [f"Bessel function of the {n} kind" for n in ("first", "second")]
_THIRD, _FOURTH = [f"modified {text}" for text in (_FIRST, _SECOND)]


def _j_slope(v: Tensor, z: Tensor) -> Tensor:
    return (jv(v - 1, z) - jv(v + 1, z)) / 2


def _y_slope(v: Tensor, z: Tensor) -> Tensor:
    return (yv(v - 1, z) - yv(v + 1, z)) / 2


def _i_slope(v: Tensor, z: Tensor) -> Tensor:
    return (iv(v - 1, z) + iv(v + 1, z)) / 2


def _k_slope(v: Tensor, z: Tensor) -> Tensor:
    return -(kv(v - 1, z) + kv(v + 1, z)) / 2


_Z = "z > 0 where v is no integer"
jv: Any = _bessel("jv", "v z", _j_slope, _Z, _FIRST)  # 10.6.1
jn: Any = _bessel("jn", "v z", _j_slope, _Z, _FIRST)
yv: Any = _bessel("yv", "v z", _y_slope, "z > 0", _SECOND)  # 10.6.1
yn: Any = _bessel("yn", "n x", _y_slope, _POSITIVE_X, _SECOND)
iv: Any = _bessel("iv", "v z", _i_slope, _Z, _THIRD)  # 10.29.1
ive: Any = _bessel(
    "ive",
    "v z",
    lambda v, z: (ive(v - 1, z) + ive(v + 1, z)) / 2 - z.sign() * ive(v, z),
    _Z,
    f"{_THIRD}, times ``exp(-abs(z))``,",
)
kv: Any = _bessel("kv", "v z", _k_slope, "z > 0", _FOURTH)  # 10.29.1
kn: Any = _bessel("kn", "n x", _k_slope, _POSITIVE_X, _FOURTH)
kve: Any = _bessel(
    "kve",
    "v z",
    lambda v, z: kve(v, z) - (kve(v - 1, z) + kve(v + 1, z)) / 2,
    "z > 0",
    f"{_FOURTH}, times ``exp(z)``,",
)
j0: Any = elementwise("special.j0", "x", {"x": lambda x: -j1(x)})  # 10.6.3
j1: Any = elementwise("special.j1", "x", {"x": lambda x: (j0(x) - jv(2, x)) / 2})  # 10.6.1
y0: Any = elementwise("special.y0", "x", {"x": lambda x: -y1(x)}, _POSITIVE_X)  # 10.6.3
y1: Any = elementwise("special.y1", "x", {"x": lambda x: y0(x) - y1(x) / x}, _POSITIVE_X)  # 10.6.2
i0: Any = written("special.i0", "x", ops.i0)
i0e: Any = written("special.i0e", "x", ops.i0e)
i1: Any = written("special.i1", "x", ops.i1)
i1e: Any = written("special.i1e", "x", ops.i1e)
k0: Any = elementwise("special.k0", "x", {"x": lambda x: -k1(x)}, _POSITIVE_X)  # 10.29.3
k0e: Any = elementwise("special.k0e", "x", {"x": lambda x: k0e(x) - k1e(x)}, _POSITIVE_X)
k1: Any = elementwise("special.k1", "x", {"x": lambda x: -k0(x) - k1(x) / x}, _POSITIVE_X)
k1e: Any = elementwise(
    "special.k1e", "x", {"x": lambda x: k1e(x) - k0e(x) - k1e(x) / x}, _POSITIVE_X
)

# --- logarithms, powers and information -----------------------------------------------------------
expit: Any = written("special.expit", "x", ops.expit)
logit: Any = written("special.logit", "x", ops.logit, "0 < x < 1")
log_expit: Any = elementwise("special.log_expit", "x", {"x": lambda x: expit(-x)})
expm1: Any = written("special.expm1", "x", ops.expm1)
log1p: Any = written("special.log1p", "x", ops.log1p, "x > -1")
exp2: Any = written("special.exp2", "x", ops.exp2)
exp10: Any = elementwise("special.exp10", "x", {"x": lambda x: math.log(10) * exp10(x)})
cbrt: Any = elementwise("special.cbrt", "x", {"x": lambda x: cbrt(x) ** -2 / 3}, "x not 0")
cosm1: Any = elementwise("special.cosm1", "x", {"x": lambda x: -x.sin()})
sinc: Any = written("special.sinc", "x", ops.sinc)
exprel: Any = elementwise("special.exprel", "x", {"x": lambda x: hyp1f1(2, 3, x) / 2})  # 13.6.2
xlogy: Any = written("special.xlogy", "x y", ops.xlogy, "y > 0")
xlog1py: Any = written("special.xlog1py", "x y", ops.xlog1py, "y > -1")
entr: Any = written("special.entr", "x", ops.entr, _POSITIVE_X)
rel_entr: Any = elementwise(
    "special.rel_entr",
    "x y",
    {"x": lambda x, y: (x / y).log() + 1, "y": lambda x, y: -x / y},
    _POSITIVE,
)
kl_div: Any = elementwise(
    "special.kl_div",
    "x y",
    {"x": lambda x, y: (x / y).log(), "y": lambda x, y: 1 - x / y},
    _POSITIVE,
)
huber: Any = elementwise(
    "special.huber",
    "delta r",
    {
        "delta": lambda delta, r: (r.abs() - delta).clamp(min=0),
        "r": lambda delta, r: r.maximum(-delta).minimum(delta),
    },
    "delta > 0",
)


def _pseudo_huber_slope(delta: Tensor, r: Tensor) -> Tensor:
    root = ((r / delta) ** 2 + 1) ** 0.5
    return delta * ((r / delta) ** 2 / (root + 1)) ** 2 / root


pseudo_huber: Any = elementwise(
    "special.pseudo_huber",
    "delta r",
    {"delta": _pseudo_huber_slope, "r": lambda delta, r: r / ((r / delta) ** 2 + 1) ** 0.5},
    "delta > 0",
)


def _boxcox(name: str, operands: str, log: Any, step: int, inverse: bool, domain: str) -> Any:
    """Enter ``log x * exprel(lmbda * log x)``, or its inverse, of ``x + step``."""

    def by_base(x: Tensor, power: Tensor) -> Tensor:
        return ((power - 1) * log(x)).exp()

    def by_lmbda(x: Tensor, power: Tensor) -> Tensor:
        return log(x) ** 2 * hyp1f1(2, 3, power * log(x)) / 2

    def by_value(y: Tensor, power: Tensor) -> Tensor:
        return (made(y, power) + step) / (power * y + 1)

    def inverse_by_lmbda(y: Tensor, power: Tensor) -> Tensor:
        curve = hyp2f1(2, 2, 3, -power * y) / 2  # of log1p(u) / u, DLMF 15.4.1
        return -(made(y, power) + step) * y**2 * curve

    by, by_power = (by_value, inverse_by_lmbda) if inverse else (by_base, by_lmbda)
    slopes = {operands[0]: by, "lmbda": by_power}
    made: Any = elementwise(f"special.{name}", operands, slopes, domain)
    return made


boxcox = _boxcox("boxcox", "x lmbda", Tensor.log, 0, False, _POSITIVE_X)
boxcox1p = _boxcox("boxcox1p", "x lmbda", Tensor.log1p, 1, False, "x > -1")
inv_boxcox = _boxcox("inv_boxcox", "y lmbda", Tensor.log, 0, True, "lmbda * y > -1")
inv_boxcox1p = _boxcox("inv_boxcox1p", "y lmbda", Tensor.log1p, 1, True, "lmbda * y > -1")

# --- others ---------------------------------------------------------------------------------------
zeta: Any = elementwise(
    "special.zeta", "x q=1", {"q": lambda x, q: -x * zeta(x + 1, q)}, "x > 1, q > 0"  # 25.11.17
)  # fmt: skip
hyp1f1: Any = elementwise(
    "special.hyp1f1", "a b x", {"x": lambda a, b, x: a / b * hyp1f1(a + 1, b + 1, x)}  # 13.3.15
)  # fmt: skip
hyp2f1: Any = elementwise(  # 15.5.1
    "special.hyp2f1",
    "a b c z",
    {"z": lambda a, b, c, z: a * b / c * hyp2f1(a + 1, b + 1, c + 1, z)},
    "z < 1",
)
exp1: Any = elementwise("special.exp1", "x", {"x": lambda x: -(-x).exp() / x}, "x > 0")  # 6.2.1
expi: Any = elementwise("special.expi", "x", {"x": lambda x: x.exp() / x}, "x not 0")  # 6.2.5


def _expn_slope(n: Tensor, x: Tensor) -> Tensor:
    """Return ``-E(n - 1)``, which is ``-exp(-x) / x`` for n = 1: DLMF 8.19.13."""
    return where(n > 1, -expn(n.clamp(min=2) - 1, x), -(-x).exp() / x)


expn: Any = elementwise("special.expn", "n x", {"x": _expn_slope}, "n >= 1, x > 0")
# K and E are hypergeometric functions: DLMF 19.5.1, 19.5.2, 15.8.1
_EIGHTH = math.pi / 8
ellipk: Any = elementwise(
    "special.ellipk", "x", {"x": lambda x: _EIGHTH * hyp2f1(0.5, 0.5, 2, x) / (1 - x)}, "x < 1"
)
ellipkm1: Any = elementwise(
    "special.ellipkm1", "x", {"x": lambda x: -_EIGHTH * hyp2f1(0.5, 0.5, 2, 1 - x) / x}, "x > 0"
)
ellipe: Any = elementwise(
    "special.ellipe", "x", {"x": lambda x: -_EIGHTH * hyp2f1(0.5, 1.5, 2, x)}, "x < 1"
)


@composed("special", by="N k", domain="0 < k < N", refused="exact")
def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """Return the number of combinations of `N` things taken `k` at a time, as a float.

    `repetition` lets each be taken again.
    """
    N, k = floats("special.comb", {"N": N, "k": k})
    if repetition:
        N = N + k - 1
    return where((k >= 0).logical_and(k <= N).logical_and(N >= 0), binom(N, k), 0.0)


__all__ = ["log_softmax", "logsumexp", "softmax"]
__all__ += [n for n in list(globals()) if f"special.{n}" in ROWS and n not in __all__]

__getattr__ = others("special", globals())
