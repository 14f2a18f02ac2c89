"""Families whose densities are exponentials of an inner product."""

from __future__ import annotations

from typing import Any

from lucid_gpu.autograd import grad
from lucid_gpu.distributions.distribution import Distribution
from lucid_gpu.tensor import Tensor

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """``p(x) = exp(t(x) . theta - F(theta) + k(x))``.

    ``_natural_params`` are ``theta``, ``_log_normalizer`` is ``F``, ``_mean_carrier_measure`` the
    mean of ``k``. Entropy follows from those (Nielsen and Nock, Entropies and cross-entropies of
    exponential families, 2010): ``F(theta) - theta . grad F(theta) - E k``.
    """

    _mean_carrier_measure: float = 0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        gradients: Any = grad(normalizer.sum(), parameters, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(parameters, gradients, strict=True):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
