"""Dropout of whole channels, and dropout that keeps mean and variance."""

from __future__ import annotations

import math

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.dropout import dropped
from lucid_gpu.ops.mirrors import is_batched
from lucid_gpu.ops.random_numbers import _uniform
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tensor import Tensor

__all__ = ["alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_SATURATION = 1.7580993408473766  # -alpha * scale of selu: what it gives far below zero


@op
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: Truth = False
) -> Tensor:
    """Zero whole channels with probability ``p``, in training; the others are scaled up.

    Tompson et al., "Efficient Object Localization Using Convolutional Networks" (2015).

    Parameters
    ----------
    input : Tensor, shape (n, c, l) or (c, l)
    p : float
    training : bool
        False gives the input back.
    inplace : bool
        Write the result into ``input``.

    Raises
    ------
    ValueError
        For a ``p`` outside ``[0, 1]``.
    RuntimeError
        For another rank.
    """
    _check(p, "dropout1d", input)
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _channels(input, input.ndim - 1, p, training, inplace)


@op
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: Truth = False
) -> Tensor:
    """`dropout1d` of images ``(n, c, h, w)``.

    As in PyTorch, the first two dimensions of any other shape are samples and channels, and a
    warning says so. ValueError for a ``p`` outside ``[0, 1]``.
    """
    _check(p, "dropout2d", input)
    if input.ndim == 3:
        warn_user(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim. This behavior will change in a future release to interpret the input as one "
            "without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise "
            "dropout behavior, please switch to using dropout1d instead.",
        )
    elif input.ndim != 4:
        _warn_of_rank("dropout2d", input, 2, "3D or 4D")
    return _channels(input, 2, p, training, inplace)


@op
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: Truth = False
) -> Tensor:
    """`dropout1d` of volumes ``(n, c, d, h, w)`` or ``(c, d, h, w)``; ValueError as there."""
    _check(p, "dropout3d", input)
    if input.ndim not in (4, 5):
        _warn_of_rank("dropout3d", input, 3, "4D or 5D")
    return _channels(input, 2 if input.ndim == 5 else 1, p, training, inplace)


@op
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: Truth = False
) -> Tensor:
    """Set elements to selu's lower limit with probability ``p``, then restore mean and variance.

    Klambauer et al., "Self-Normalizing Neural Networks" (2017), section 3.

    Parameters
    ----------
    input : Tensor
    p : float
    training : bool
        False gives the input back.
    inplace : bool
        Write the result into ``input``.

    Raises
    ------
    ValueError
        For a ``p`` outside ``[0, 1]``.
    """
    _check(p, "alpha_dropout", input)
    return _saturated(input, tuple(input.shape), p, training, inplace)


@op
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: Truth = False
) -> Tensor:
    """`alpha_dropout` of whole channels of ``(n, c, *)``.

    ValueError for a ``p`` outside ``[0, 1]``; RuntimeError for fewer than two dimensions.
    """
    _check(p, "feature_alpha_dropout", input)
    if training and 0 < p < 1:
        _require_channels(input)
    return _saturated(input, _one_each(input, 2), p, training, inplace)


def feature_dropout(input: Tensor, p: float, training: bool, inplace: Truth = False) -> Tensor:
    """`dropout1d` to `dropout3d` of ``(n, c, *)`` of any rank, without their warnings."""
    _check(p, "feature_dropout", input)
    return _channels(input, 2, p, training, inplace)


def _check(p: float, name: str, input: Tensor) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    require_tensor(name, "input", 1, input)


def _warn_of_rank(name: str, input: Tensor, window: int, ranks: str) -> None:
    warn_user(
        f"{name}: Received a {input.ndim}-D input to {name}, which is deprecated and will result "
        "in an error in a future release. To retain the behavior and silence this warning, please "
        f"use dropout instead. Note that {name} exists to provide channel-wise dropout on inputs "
        f"with {window} spatial dimensions, a channel dimension, and an optional batch dimension "
        f"(i.e. {ranks} inputs).",
    )


def _require_channels(input: Tensor) -> None:
    if input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")


def _one_each(input: Tensor, lead: int) -> tuple[int, ...]:
    """The shape of one number for each channel."""
    return tuple([n if d < lead else 1 for d, n in enumerate(input.shape)])


def _mask(input: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    if input.dtype.category < 2:
        raise RuntimeError(
            f"result type float32 can't be cast to the desired output type {input.dtype.type_name}"
        )
    mask: Tensor = _uniform(shape, dt.float32, input.device, None, 0.0, 1.0, True) >= p
    if not costs_of(input.device).draws_again and not is_batched(mask):
        mask.array  # noqa: B018  see `dropout`
    return mask


def _channels(input: Tensor, lead: int, p: float, training: bool, inplace: Truth) -> Tensor:
    if not training or p == 0.0:
        return input
    if lead == 2:
        _require_channels(input)
    return dropped(input, _mask(input, _one_each(input, lead), p), p, inplace)


def _saturated(
    input: Tensor, shape: tuple[int, ...], p: float, training: bool, inplace: Truth
) -> Tensor:
    if not training or p == 0.0:
        return input
    if p == 1.0:
        result = input * 0
    else:
        mask = _mask(input, shape, p)
        scale = 1 / math.sqrt((_SATURATION**2 * p + 1) * (1 - p))
        shift = _SATURATION * scale * p
        result = (input * scale + shift).where(mask, shift - _SATURATION * scale)
    return input.copy_(result) if inplace else result
