"""Invertible maps with the logarithm of their Jacobian determinant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.constraints import Constraint
from lucid_gpu.distributions.transform import (
    CatTransform,
    CumulativeDistributionTransform,
    Inverse,
    ReshapeTransform,
    StackTransform,
    Transform,
)
from lucid_gpu.distributions.utils import eps, sum_rightmost, tiny
from lucid_gpu.linalg import cholesky
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import arange, eye, full_like, zeros_like
from lucid_gpu.ops.grids import tril_indices
from lucid_gpu.ops.stacking import broadcast_shapes
from lucid_gpu.tensor import Tensor

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]

_InverseTransform = Inverse  # PyTorch's name, which packages of flows ask for


class StickBreakingTransform(Transform):
    """Fractions ``sigmoid(x_i - log(n - i))`` of what is left of a stick, and the last rest."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        z = _left(x).sigmoid().clamp(min=tiny(x.dtype), max=1.0 - eps(x.dtype))
        return F.pad(z, (0, 1), value=1.0) * F.pad((1 - z).cumprod(-1), (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        rest = (1 - parts.cumsum(-1)).clamp(min=tiny(y.dtype))
        return parts.log() - rest.log() + _counts(parts).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        z = _left(x)
        return (F.logsigmoid(z) - z + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _at_least(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        _at_least(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


def _counts(x: Tensor) -> Tensor:
    """``n, n - 1, ..., 1`` beside the last dimension."""
    n = x.shape[-1]
    return arange(n, 0, -1, dtype=x.dtype, device=x.device)


def _left(x: Tensor) -> Tensor:
    return x - _counts(x).log()


def _at_least(shape: Any, dims: int) -> None:
    if len(shape) < dims:
        raise ValueError("Too few dimensions on input")


class LowerCholeskyTransform(Transform):
    """The lower triangle of a matrix, with the exponential of its diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """``L L^T`` for the ``L`` of `LowerCholeskyTransform`."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.transpose(-2, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform()._inverse(cholesky(y))


class CorrCholeskyTransform(Transform):
    """A vector of ``n (n - 1) / 2`` numbers as the Cholesky factor of a correlation matrix.

    ``tanh`` of the numbers stands below the diagonal, row by row; each row is a stick of length 1
    whose entries take signed shares of the square that is left.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        most = 1 - eps(x.dtype)
        r = _below_diagonal(x.tanh().clamp(min=-most, max=most))
        left = (1 - r * r).sqrt().cumprod(-1)
        unit = eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return (r + unit) * F.pad(left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - (y * y).cumsum(-1))[..., :-1], (1, 0), value=1.0)
        return (_of_below(y) / _of_below(left).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = _of_below(1 - (y * y).cumsum(-1), -2)
        of_tanh = x + F.softplus(-2.0 * x) - math.log(2.0)
        return 0.5 * left.log().sum(-1) - 2 * of_tanh.sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _at_least(shape, 1)
        n = _rows(shape[-1])
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Any:
        _at_least(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _rows(count: int) -> int:
    """Of a matrix with so many entries below its diagonal."""
    n = round((0.25 + 2 * count) ** 0.5 + 0.5)
    if n * (n - 1) // 2 != count:
        raise ValueError("Input is not a flattened lower-diagonal number")
    return n


def _below_diagonal(x: Tensor) -> Tensor:
    """Vectors as strictly lower triangular matrices, row by row."""
    n = _rows(x.shape[-1])
    index = arange(n, device=x.device)
    row, column = index[:, None], index
    index = (row * (row - 1) // 2 + column).masked_fill(column >= row, x.shape[-1])
    return F.pad(x, (0, 1))[..., index]


def _of_below(x: Tensor, diagonal: int = -1) -> Tensor:
    """The entries of matrices on and below a diagonal, row by row."""
    i, j = tril_indices(x.shape[-2], x.shape[-1], diagonal, device=x.device)
    return x[..., i, j]


class ComposeTransform(Transform):
    """One map after another.

    Parameters
    ----------
    parts : list of Transform
        First to last; each takes results of the shape that the one before gives.
    cache_size : {0, 1}
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(part.bijective for part in self.parts)

    @property
    def domain(self) -> Any:
        """Where arguments lie."""
        if not self.parts:
            return constraints.real
        count = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            count = max(
                count + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim
            )
        return _with_events(self.parts[0].domain, count)

    @property
    def codomain(self) -> Any:
        """Where results lie."""
        if not self.parts:
            return constraints.real
        count = self.parts[0].domain.event_dim
        for part in self.parts:
            count += part.codomain.event_dim - part.domain.event_dim
            count = max(count, part.codomain.event_dim)
        return _with_events(self.parts[-1].codomain, count)

    @property
    def sign(self) -> Any:
        result: Any = 1
        for part in self.parts:
            result = result * part.sign
        return result

    @property
    def inv(self) -> Transform:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = None
        count = self.domain.event_dim
        for i, part in enumerate(self.parts):
            z = y if i == len(self.parts) - 1 else part(x)
            term = part.log_abs_det_jacobian(x, z)
            term = sum_rightmost(term, count - part.domain.event_dim)
            total = term if total is None else total + term
            count += part.codomain.event_dim - part.domain.event_dim
            x = z
        return zeros_like(x) if total is None else total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inner = ",\n    ".join(repr(part) for part in self.parts)
        return f"ComposeTransform(\n    {inner}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A map whose last dimensions belong to one event.

    Parameters
    ----------
    base_transform : Transform
    reinterpreted_batch_ndims : int
    cache_size : {0, 1}
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inv_call(y)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        each = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(each, self.reinterpreted_batch_ndims)


class _Rising(Transform):
    bijective = True
    sign = 1


class ExpTransform(_Rising):
    """``y = exp(x)``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """``y = x^exponent`` for positive ``x``.

    Parameters
    ----------
    exponent : float or Tensor, broadcast with ``x``
    cache_size : {0, 1}
    """

    bijective = True
    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        e = self.exponent
        return e.sign() if isinstance(e, Tensor) else math.copysign(1, e)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return _joined(shape, self.exponent)

    inverse_shape = forward_shape


def _clipped_sigmoid(x: Tensor) -> Tensor:
    return x.sigmoid().clamp(min=tiny(x.dtype), max=1.0 - eps(x.dtype))


class SigmoidTransform(_Rising):
    """``y = 1 / (1 + exp(-x))``."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        y = y.clamp(min=tiny(y.dtype), max=1.0 - eps(y.dtype))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(_Rising):
    """``y = tanh(x)``."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class SoftplusTransform(_Rising):
    """``y = log(1 + exp(x))``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class AbsTransform(Transform):
    """``y = |x|``; its inverse is the positive one."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """``y = loc + scale * x``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast with ``x``
    event_dim : int
        How many dimensions of a value belong together.
    cache_size : {0, 1}
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim
        self.domain = self.codomain = _with_events(constraints.real, event_dim)

    @property
    def sign(self) -> Any:
        scale = self.scale
        return scale.sign() if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        if isinstance(scale, Tensor):
            result = scale.abs().log().expand(x.shape)
        else:
            result = full_like(x, math.log(abs(scale)))
        return sum_rightmost(result, self._event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return _joined(shape, self.loc, self.scale)

    inverse_shape = forward_shape


class SoftmaxTransform(Transform):
    """``y = softmax(x)`` over the last dimension; its inverse is the logarithm."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, dim=-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


def _joined(shape: Any, *settings: Any) -> Any:
    """What a shape and those of a map's settings broadcast to."""
    return broadcast_shapes(shape, *(s.shape for s in settings if isinstance(s, Tensor)))


def _with_events(constraint: Constraint, count: int) -> Constraint:
    """A constraint on values of which so many dimensions belong together."""
    more = count - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint
