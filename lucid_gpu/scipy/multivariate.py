"""Distributions of vectors, of `scipy.stats`, and a kernel density estimate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucid_gpu import linalg
from lucid_gpu.ops.creation import eye
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.shape import cat
from lucid_gpu.scipy import special
from lucid_gpu.scipy.distributions import Distribution
from lucid_gpu.scipy.rows import ROWS, Row, floats
from lucid_gpu.tensor import Tensor

_LOG_TWO_PI = math.log(2 * math.pi)


def _entered(name: str, kind: str, log_density: Callable[..., Tensor], by: str, notes: str) -> Any:
    def density(*args: Any, **kwargs: Any) -> Tensor:
        return log_density(*args, **kwargs).exp()

    methods = {f"log{kind}": log_density, kind: density}
    if name == "gaussian_kde":
        methods["evaluate"] = density
    ROWS[f"stats.{name}"] = Row(f"stats.{name}", "ops", by, notes, "methods " + " ".join(methods))
    return Distribution(name, methods)


def _dirichlet(x: Any, alpha: Any) -> Tensor:
    """Return the logarithm of the density; `x` has its parts on the first axis."""
    x, alpha = floats("stats.dirichlet.logpdf", {"x": x, "alpha": alpha})
    if x.shape[0] == alpha.shape[0] - 1:
        x = cat([x, (1 - x.sum(0)).unsqueeze(0)])
    if x.shape[0] != alpha.shape[0]:
        raise ValueError(
            f"stats.dirichlet: x has {x.shape[0]} parts and alpha {alpha.shape[0]}; give as many, "
            "or all but the last"
        )
    powers = (alpha - 1).reshape((-1,) + (1,) * (x.ndim - 1))
    scale = special.gammaln(alpha.sum()) - special.gammaln(alpha).sum()
    log_density: Tensor = scale + special.xlogy(powers, x).sum(0)
    return log_density


def _quadratic(differences: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``d @ inv(cov) @ d`` of the last axis, and the logarithm of ``det(2 pi cov)``."""
    factor = linalg.cholesky(cov)
    flat = differences.reshape(-1, cov.shape[-1]).mT
    solved = linalg.solve_triangular(factor, flat, upper=False)
    log_det = 2 * factor.diagonal().log().sum() + cov.shape[-1] * _LOG_TWO_PI
    return (solved * solved).sum(0).reshape(differences.shape[:-1]), log_det


def _normal(x: Any, mean: Any = None, cov: Any = 1) -> Tensor:
    """Return the logarithm of the density; `x` has its parts on the last axis."""
    given = {"x": x, "mean": 0.0 if mean is None else mean, "cov": cov}
    x, mean, cov = floats("stats.multivariate_normal.logpdf", given)
    size = max(cov.shape[-1] if cov.ndim else 1, mean.numel())
    cov = cov.diag() if cov.ndim == 1 else cov if cov.ndim else cov * eye(size).to(cov)
    if cov.shape != (size, size):
        raise ValueError(
            f"stats.multivariate_normal: mean has {mean.numel()} parts and cov the shape "
            f"{tuple(cov.shape)}; give a square matrix of as many rows"
        )
    if size == 1 and (x.ndim == 0 or x.shape[-1] != 1):
        x = x.unsqueeze(-1)
    distance, log_det = _quadratic(x - mean, cov)
    return -(distance + log_det) / 2


def _multinomial(x: Any, n: Any, p: Any) -> Tensor:
    """Return the logarithm of the probability; `x` and `p` have their parts on the last axis."""
    x, n, p = floats("stats.multinomial.logpmf", {"x": x, "n": n, "p": p})
    possible = (x.sum(-1) == n).logical_and((x >= 0).all(-1)).logical_and((x == x.floor()).all(-1))
    total = special.gammaln(n + 1) + (special.xlogy(x, p) - special.gammaln(x + 1)).sum(-1)
    return where(possible, total, -math.inf)


dirichlet = _entered("dirichlet", "pdf", _dirichlet, "x alpha", "sums of x are not checked")
multivariate_normal = _entered(
    "multivariate_normal", "pdf", _normal, "x mean cov", "cov positive definite, one matrix"
)
multinomial = _entered("multinomial", "pmf", _multinomial, "n p", "p sums to 1, not checked")


_RULES: dict[str | None, Callable[[int], float]] = {
    None: lambda d: 1.0,
    "scott": lambda d: 1.0,
    "silverman": lambda d: ((d + 2) / 4) ** (-1 / (d + 4)),
}


def _kernels(points: Any, dataset: Any, bw_method: Any = None, weights: Any = None) -> Tensor:
    """Return the logarithm of the density that has a normal one around each of the data.

    `dataset` and `points` have their parts on the first axis. The factor is a number or Scott's
    or Silverman's rule (SciPy's documentation of ``gaussian_kde``).
    """
    if callable(bw_method) or (isinstance(bw_method, str) and bw_method not in _RULES):
        raise TypeError(
            "stats.gaussian_kde takes 'scott', 'silverman' or a number as bw_method, not "
            f"{bw_method!r}"
        )
    by_rule = bw_method is None or isinstance(bw_method, str)
    given = {"points": points, "dataset": dataset, "bw_method": 0.0 if by_rule else bw_method}
    given["weights"] = 1.0 if weights is None else weights
    x, data, factor, weights = floats("stats.gaussian_kde.logpdf", given)
    data = data if data.ndim == 2 else data.reshape(1, -1)
    d, n = data.shape
    x = x if x.ndim == 2 else x.reshape(d if d > 1 else 1, -1)
    weights = weights.expand(n) / weights.expand(n).sum()
    heavy = (weights * weights).sum()
    if by_rule:
        factor = heavy ** (1 / (d + 4)) * _RULES[bw_method](d)
    centered = data - (data * weights).sum(1, keepdim=True)
    cov = (centered * weights) @ centered.mT / (1 - heavy) * factor**2
    distance, log_det = _quadratic(x.mT.unsqueeze(1) - data.mT, cov)
    log_density: Tensor = special.logsumexp(weights.log() - (distance + log_det) / 2, axis=1)
    return log_density


gaussian_kde = _entered(
    "gaussian_kde", "pdf", _kernels, "points dataset bw_method weights", "bw_method not a function"
)
