"""Calls of `scipy.stats`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.ops.samples import Row, fixed, row, t

LOC, SCALE, SHAPES, UNIT = (-0.2, 0.2), (0.7, 1.5), (0.6, 4.0), (0.1, 0.9)


def methods(x: list[float], names: str) -> Callable[[Any], tuple[Any, ...]]:
    """All that a distribution with fixed parameters says of values, which lie inside it.

    Inverses are taken of its own shares, so that both operands of theirs have derivatives.
    """

    def of(fixed: Any) -> tuple[Any, ...]:
        plain = tuple([getattr(fixed, name)(x) for name in names.split()])
        if "pmf" in names:
            return plain
        return (*plain, fixed.ppf(fixed.cdf(x) * 0.8), fixed.isf(fixed.cdf(x) * 0.8))

    return of


def continuous(name: str, x: list[float], *shapes: tuple[float, float]) -> Row:
    drawn = [t(2, of=domain) for domain in (*shapes, LOC, SCALE)]
    names = "logpdf pdf cdf sf logcdf logsf"
    return row(f"stats.{name}", *drawn).compare(methods(x, names))


def discrete(name: str, x: list[float], *args: Any) -> Row:
    names = "logpmf pmf cdf sf logcdf logsf"
    return row(f"stats.{name}", *args).compare(methods(x, names))


def both(x: Any) -> Callable[[Any], tuple[Any, ...]]:
    return lambda fixed: (fixed.logpdf(x), fixed.pdf(x))


REAL, POSITIVE, INSIDE = [-1.5, 0.6], [0.5, 2.0], [0.3, 0.5]

POINTS = [[0.2, -0.3], [1.0, 0.4]]
NORMALIZED = "SciPy makes probabilities sum to 1; test_stats.py has such"
SYMMETRIC = "of a matrix that stays symmetric: test_stats.py"
PARTS = "seconds: the rows of its shares in special.py have their second derivatives checked"

ROWS = [
    *[continuous(name, REAL) for name in ["cauchy", "laplace", "logistic", "norm"]],
    continuous("expon", POSITIVE),
    continuous("uniform", INSIDE),
    continuous("lognorm", POSITIVE, SHAPES),
    continuous("t", REAL, SHAPES).but(twice=PARTS),
    *[continuous(name, POSITIVE, SHAPES).but(twice=PARTS) for name in ["chi2", "gamma"]],
    continuous("beta", INSIDE, SHAPES, SHAPES).but(twice=PARTS),
    discrete("poisson", [0.0, 2.0], t(2, of=SHAPES)),
    discrete("binom", [0.0, 2.0], fixed([4.0]), t(2, of=UNIT)),
    discrete("bernoulli", [0.0, 0.0], t(2, of=UNIT)),
    row("stats.dirichlet", t(3, of=SHAPES)).compare(both([[0.2, 0.3], [0.3, 0.3], [0.5, 0.4]])),
    row("stats.multivariate_normal", t(2), t(2, 2, of="definite"))
    .compare(both(POINTS))
    .but(gradients=SYMMETRIC),
    row("stats.multivariate_normal", t(2), t(2, of=UNIT)).compare(both(POINTS)),
    row("stats.multivariate_normal", None, t(of=UNIT)).compare(both([0.2, -0.3])),
    row("stats.multinomial", 4, t(3, of=UNIT))
    .compare(lambda fixed: (fixed.logpmf([1, 0, 3]), fixed.pmf([[1, 0, 3], [1, 1, 1]])))
    .but(values=NORMALIZED),
    row("stats.gaussian_kde", t(2, 4), "silverman", t(4, of=UNIT)).compare(both(POINTS)),
    row("stats.gaussian_kde", t(4), 0.4).compare(both([0.2, -0.3])),
]
