"""Random numbers of further distributions: Poisson, binomial, gamma, and more in place.

Those that take rejection are drawn on the host, for a GPU too.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from lucid_gpu import dtypes as dt
from lucid_gpu.kernels import gamma_samples
from lucid_gpu.ops.generator import Generator, _draw
from lucid_gpu.ops.random_numbers import _normal, _on_device, _uniform, drawn_by, drawn_for_each
from lucid_gpu.ops.record import record
from lucid_gpu.ops.stacking import broadcast_tensors
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor


@op
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts of Poisson distributions with the rates that ``input`` gives, of its shape and type.

    NotImplementedError for integers, bool and complex; RuntimeError for negative rates.
    """
    if input.dtype.category != 2:
        raise dt.unimplemented("poisson", input.dtype)
    rates = _on_host(input)
    if not (rates >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    numbers = gamma_samples.stream(*_draw(generator, input.device))
    counts = numbers.poisson(rates.reshape(-1))
    sample = _on_device(counts, input.shape, input.dtype, input.device)
    return drawn_by(sample, input)


@batching(poisson, unbatched=True)
def _poisson_batched(
    level: Batch, f: Any, input: Tensor, generator: Generator | None = None
) -> Tensor:
    return drawn_for_each(level, f, (input,), generator)


@op
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of ``count`` trials succeed, each with probability ``prob``.

    Parameters
    ----------
    count, prob : Tensor
        Of one floating point type; broadcast against each other.

    Raises
    ------
    RuntimeError
        For other types, a negative ``count``, and a ``prob`` outside ``[0, 1]``.
    """
    if count.dtype.category != 2 or prob.dtype is not count.dtype:
        raise RuntimeError(
            "binomial only supports floating-point dtypes for count and prob, and the same for "
            f"both, got: {count.dtype.name} and {prob.dtype.name}"
        )
    shape = (count.detach() + prob.detach()).shape
    trials, shares = [_on_host(t.detach()) for t in (count, prob)]
    if not ((trials >= 0) & (shares >= 0) & (shares <= 1)).all():
        raise RuntimeError("binomial expects count >= 0 and 0 <= prob <= 1")
    numbers = gamma_samples.stream(*_draw(generator, count.device))
    successes = numbers.binomial(trials.astype("int64")[None], shares[None])
    sample = _on_device(successes, shape, count.dtype, count.device)
    return drawn_by(sample, count, prob)


@batching(binomial, unbatched=True)
def _binomial_batched(
    level: Batch, f: Any, count: Tensor, prob: Tensor, generator: Generator | None = None
) -> Tensor:
    return drawn_for_each(level, f, broadcast_tensors(count, prob), generator)


def _on_host(t: Tensor) -> Any:
    return t.detach().cpu().array.astype("float64")


# --- gamma ----------------------------------------------------------------------------------------


@op
def standard_gamma(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Samples of gamma distributions of shapes ``alpha`` and rate 1, differentiable by alpha.

    Parameters
    ----------
    alpha : Tensor of a floating point type, positive
    generator : Generator, optional

    Returns
    -------
    Tensor, of alpha's shape and type
        Never 0, but the type's smallest normal number at least. The gradient is that of the sample
        at a fixed quantile; it has no second derivative.
    """
    if alpha.dtype.category != 2:
        raise dt.unimplemented("gamma", alpha.dtype)
    shapes = _on_host(alpha)
    if not (shapes >= 0).all():
        raise RuntimeError("gamma expects alpha >= 0")
    numbers = gamma_samples.stream(*_draw(generator, alpha.device))
    tiny = float(ml_dtypes.finfo(alpha.dtype.numpy).tiny)
    drawn = numbers.standard_gamma(shapes.reshape(-1)).clip(tiny)
    array = _on_device(drawn, alpha.shape, alpha.dtype, alpha.device).array
    result: Tensor = record(
        "StandardGammaBackward0", array, (alpha,), _gamma_vjp, (alpha,), alpha.dtype, True
    )
    return result


@batching(standard_gamma, unbatched=True)
def _standard_gamma_batched(
    level: Batch, f: Any, alpha: Tensor, generator: Generator | None = None
) -> Tensor:
    return drawn_for_each(level, f, (alpha,), generator)


def _gamma_vjp(node: Any, g: Tensor) -> Any:
    alpha, z = node.saved_values
    psi = (alpha.detach().cpu().double() + 1).digamma()
    slope = gamma_samples.gamma_slope(_on_host(alpha), _on_host(z), psi.array)
    array = _on_device(slope, alpha.shape, alpha.dtype, alpha.device).array
    return (g * record("StandardGammaGradBackward0", array, (alpha, z), _no_second),)


def _no_second(node: Any, g: Tensor) -> Any:
    raise NotImplementedError("the derivative for '_standard_gamma_grad' is not implemented.")


def dirichlet(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Samples of Dirichlet distributions: gamma samples over the last dimension by their sum.

    In float64, where those of small ``alpha`` seldom underflow; inside the simplex, never 0 or 1.
    """
    x = standard_gamma(alpha.double(), generator)
    shares = (x / x.sum(-1, keepdim=True)).to(alpha.dtype)
    limits = ml_dtypes.finfo(alpha.dtype.numpy)
    inside = shares.detach().clamp(float(limits.tiny), 1 - float(limits.epsneg))
    return shares + (inside - shares.detach())


# --- in place -------------------------------------------------------------------------------------


@op
def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers of a Cauchy distribution, in place.

    RuntimeError where ``sigma`` is not above 0, and for integers, bool and complex.
    """
    _continuous("Cauchy", self)
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    angle = (_unit(self, generator) - 0.5) * math.pi
    return self._write((angle.tan() * sigma + median).to(self.dtype), "cauchy_")


@op
def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers whose logarithm is normal, in place.

    RuntimeError where ``std`` is not above 0, and for integers, bool and complex.
    """
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    _continuous("Log Normal", self)
    numbers = _normal(self.shape, dt.float64, self.device, generator, mean, std)
    return self._write(numbers.exp().to(self.dtype), "log_normal_")


@op
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with how many trials of probability ``p`` it takes to succeed, in place.

    RuntimeError where ``p`` is not between 0 and 1; NotImplementedError for bool and complex.
    """
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if self.dtype.is_complex or self.dtype is dt.bool:
        raise dt.unimplemented("geometric", self.dtype)
    trials = ((-_unit(self, generator)).log1p() / math.log1p(-p)).ceil().clamp(min=1)
    return self._write(trials.to(self.dtype), "geometric_")


def _unit(like: Tensor, generator: Generator | None) -> Tensor:
    return _uniform(like.shape, dt.float64, like.device, generator)


def _continuous(name: str, t: Tensor) -> None:
    if t.dtype.category != 2:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {t.dtype.name}"
        )


METHODS = (cauchy_, log_normal_, geometric_)
FUNCTIONS = (poisson, binomial)
