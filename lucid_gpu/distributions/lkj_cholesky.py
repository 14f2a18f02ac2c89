"""Cholesky factors of random correlation matrices."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.beta import Beta
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.utils import broadcast_all, tiny
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.random import randn
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """``L`` with ``p(L L^T)`` in proportion to ``det(L L^T)^(concentration - 1)``.

    Drawn row by row, by the onion method (Lewandowski, Kurowicka, Joe, Generating random
    correlation matrices based on vines and extended onion method, 2009, section 3.2).

    Parameters
    ----------
    dim : int
        Rows of the matrices, at least 2, else ValueError.
    concentration : float or Tensor, broadcast to batch_shape
        1 for a uniform distribution of the correlation matrices.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky
    concentration: Tensor

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _numbers(self, first: int, end: int) -> Tensor:
        c = self.concentration
        return arange(first, end, dtype=c.dtype, device=c.device)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Factors without gradients, of shape ``sample_shape + batch_shape + (dim, dim)``.

        Each row is a direction times the root of a beta variable, and what is left of 1.
        """
        c, n = self.concentration.unsqueeze(-1), self.dim
        row = self._numbers(-1, n - 1).clamp(min=0)
        with no_grad():
            size = Beta(row + 0.5, c + 0.5 * (n - 2) - 0.5 * row, validate_args=False)
            squares = size.sample(sample_shape).unsqueeze(-1)
            noise = randn(self._extended_shape(sample_shape), dtype=c.dtype, device=c.device)
            noise = noise.tril(-1)
            lengths = noise.square().sum(-1, keepdim=True).sqrt().clamp(min=tiny(c.dtype))
            below = squares.sqrt() * noise / lengths  # the first row is 0
            left = (1 - below.square().sum(-1)).clamp(min=tiny(c.dtype)).sqrt()
            return below + left.diag_embed()

    def _log_prob(self, value: Tensor) -> Tensor:
        n, c = self.dim, self.concentration
        order = 2 * (c - 1).unsqueeze(-1) + n - self._numbers(2, n + 1)
        density = (order * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
        alpha = c + 0.5 * (n - 1)
        scale = (alpha - 0.5).mvlgamma(n - 1) - (n - 1) * alpha.lgamma()
        return density - (0.5 * (n - 1) * math.log(math.pi) + scale)
