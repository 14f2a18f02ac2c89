"""Softmax and its kin: one primitive, the log of a sum of exponentials; the rest is arithmetic.

``log_softmax(x) = x - lse(x)``, ``softmax(x) = exp(x - lse(x))``, and cross entropy is
``lse(x) - x[target]``. The gradient of ``lse`` is ``exp(x - lse)``: one number a row is all that is
saved beside the input, and everything elementwise around it fuses. The gradient of a cross entropy,
``softmax(x) - onehot(target)``, is one kernel that stores neither term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.devices import xp_of
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.ops.record import record
from lucid_gpu.tape.modes import is_grad_enabled, no_grad
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["cross_entropy", "log_softmax", "nll_loss", "reduce_loss", "softmax"]

SMALL = 1 << 16  # elements up to which a few array operations beat building a kernel
_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda loss: loss,
    "mean": lambda loss: loss.mean(),
    "sum": lambda loss: loss.sum(),
}


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """What ``reduction=`` means: ``"none"``, ``"mean"`` or ``"sum"``."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _REDUCTIONS[reduction](loss)


def _logsumexp(input: Tensor, dim: int) -> Tensor:
    """As `reductions.logsumexp`, with the dimension kept, but one node: its value is saved."""
    value = from_array(_lse(input, dim), input.dtype, input.device)

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        (x,) = node.saved_tensors
        return (g * _softmax_of(x, dim, value),)

    return record("LogsumexpBackward0", value.array, (input,), vjp, saved=(input,))


def _softmax_of(x: Tensor, dim: int, value: Tensor) -> Tensor:
    """``exp(x - lse(x))`` where the value of lse is known; differentiable if need be."""
    return (x - (_logsumexp(x, dim) if is_grad_enabled() else value)).exp()


def _lse(input: Tensor, dim: int) -> Any:
    """The array ``log(sum(exp(x)))``, the dimension kept."""
    wide = input.dtype.compute.numpy
    lowest = xp_of(input).finfo(wide).min  # -inf - -inf would be NaN
    if input.numel() <= SMALL:
        x = input.array.astype(wide, copy=False)
        total = run_quietly(_lse_of_small, xp_of(input), x, dim, lowest)
        return total.astype(input.dtype.numpy, copy=False)
    with no_grad():
        top = input.amax(dim, keepdim=True).clamp(min=lowest.item())
        return ((input - top).exp().sum(dim, keepdim=True).log() + top).array


def _lse_of_small(xp: Any, x: Any, dim: int, lowest: Any) -> Any:
    top = xp.maximum(x.max(axis=dim, keepdims=True), lowest)
    return xp.log(xp.exp(x - top).sum(axis=dim, keepdims=True)) + top


def log_softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`: ``x - logsumexp(x)``.

    Parameters
    ----------
    input : Tensor
    dim : int
    dtype : dtype, optional
        What the input is cast to first.

    Returns
    -------
    Tensor, of input's shape
    """
    input, dim = _prepared("log_softmax", input, dim, dtype)
    return input - _logsumexp(input, dim)


def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along a dimension; arguments as for `log_softmax`."""
    input, dim = _prepared("softmax", input, dim, dtype)
    return (input - _logsumexp(input, dim)).exp()


def _prepared(name: str, input: Tensor, dim: int | None, dtype: Any) -> tuple[Tensor, int]:
    if dtype is not None:
        input = input.to(dtype)
    if not input.is_floating_point():
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype}; cast the input, or pass dtype='
        )
    return input, _old_default(input) if dim is None else dim


def _old_default(input: Tensor) -> int:
    """The dimension PyTorch takes where none is named."""
    return 0 if input.ndim in (0, 1, 3) else 1


# -- classification losses ---------------------------------------------------------------------


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The negative of each target's entry: ``-weight[t] * input[n, t]``.

    Parameters
    ----------
    input : Tensor, shape (c,), (n, c) or (n, c, d1, ...)
        Log-probabilities.
    target : Tensor of int64, shape (), (n,) or (n, d1, ...)
    weight : Tensor, shape (c,), optional
    ignore_index : int
        Targets that count nothing.
    reduction : {"mean", "sum", "none"}
        The mean is over the weights of the targets.

    Raises
    ------
    IndexError
        Where a target is no class.
    """
    target, kept = _checked(input, target, ignore_index)
    return _total(-_pick(input, target), input, target, kept, weight, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """``logsumexp(input[n]) - input[n, t]``: the cross entropy of unnormalised scores.

    Parameters
    ----------
    input : Tensor, shape (c,), (n, c) or (n, c, d1, ...)
        Scores of the classes (logits).
    target : Tensor
        Class numbers (int64) of shape (), (n,) or (n, d1, ...), or probabilities of input's shape.
    weight : Tensor, shape (c,), optional
        Of each class.
    ignore_index : int
        Targets that count nothing.
    reduction : {"mean", "sum", "none"}
    label_smoothing : float
        How much of each target is spread over all classes.

    Raises
    ------
    IndexError
        Where a target is no class.
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.is_floating_point():
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    target, kept = _checked(input, target, ignore_index)
    loss = _class_losses(input, target)
    if not label_smoothing:
        return _total(loss, input, target, kept, weight, reduction)
    dim = _class_dim(input)
    each = -log_softmax(input, dim)
    if weight is not None:
        each, loss = each * _along(weight, input), loss * _weights(weight, target)
    spread = each.mean(dim) * label_smoothing
    loss = loss * (1 - label_smoothing) + spread
    return _total(loss, input, target, kept, weight, reduction, False)


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    if tuple(target.shape) != tuple(input.shape):
        raise RuntimeError(
            f"Expected floating point target with class probabilities to have the same shape as "
            f"input, got {list(target.shape)} and {list(input.shape)}"
        )
    dim = _class_dim(input)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[dim]
    scored = log_softmax(input, dim) * target
    if weight is not None:
        scored = scored * _along(weight, input)
    loss = -scored.sum(dim)
    if reduction == "mean":
        return loss.sum() / max(loss.numel(), 1)
    return reduce_loss(loss, reduction)


def _class_dim(input: Tensor) -> int:
    return 0 if input.ndim == 1 else 1


def _along(weight: Tensor, input: Tensor) -> Tensor:
    """Weights of the classes, shaped to broadcast with the scores."""
    return weight.reshape(-1, *[1] * (input.ndim - 1 - _class_dim(input)))


def _weights(weight: Tensor, target: Tensor) -> Tensor:
    """The weight of each target; a constant, as in PyTorch."""
    return from_array(weight.array.take(target.array), weight.dtype, weight.device)


def _checked(input: Tensor, target: Tensor, ignore: int) -> tuple[Tensor, Tensor | None]:
    """Targets that are all classes, and where they count (None: everywhere)."""
    dim = _class_dim(input)
    expected = (*input.shape[:dim], *input.shape[dim + 1 :])
    if input.ndim == 0 or tuple(target.shape) != expected:
        raise ValueError(
            f"Expected target size {list(expected)}, got {list(target.shape)}: an input of shape "
            f"{list(input.shape)} takes one class number for each of its score vectors"
        )
    if target.dtype.category != 1:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype} for the target")
    classes, t = input.shape[dim], target.array
    if not t.size or (t.min() >= 0 and t.max() < classes and not 0 <= ignore < classes):
        return target, None
    kept = t != ignore
    wrong = kept & ((t < 0) | (t >= classes))
    if wrong.any():
        raise IndexError(
            f"Target {int(t[wrong].reshape(-1)[0])} is out of bounds: the input has {classes} "
            f"classes, and ignore_index is {ignore}"
        )
    safe = from_array(t * kept, target.dtype, target.device)
    return safe, from_array(kept, None, target.device)


def _pick(input: Tensor, target: Tensor) -> Tensor:
    """``input[n, target[n]]``. Its adjoint is a comparison, which fuses, not a scatter."""
    found, onehot = _look_up(input, target)
    dim = _class_dim(input)

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        return (g.unsqueeze(dim) * onehot(),)

    return record("NllLossBackward0", found.squeeze(dim), (input,), vjp)


def _class_losses(input: Tensor, target: Tensor) -> Tensor:
    """``lse(input[n]) - input[n, target[n]]``; the gradient is ``softmax(input) - onehot``."""
    found, onehot = _look_up(input, target)
    dim = _class_dim(input)
    value = _lse(input, dim)

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        (x,) = node.saved_tensors
        lse = from_array(value, x.dtype, x.device)
        return ((_softmax_of(x, dim, lse) - onehot()) * g.unsqueeze(dim),)

    losses = (value - found).squeeze(dim)
    return record("CrossEntropyBackward0", losses, (input,), vjp, saved=(input,))


def _look_up(input: Tensor, target: Tensor) -> tuple[Any, Callable[[], Tensor]]:
    """Each target's score, the class dimension kept, and a maker of the pending one-hot rows."""
    xp, dim = xp_of(input), _class_dim(input)
    place = xp.expand_dims(target.array, dim).copy()  # whatever becomes of the target later
    found = xp.take_along_axis(input.array, place, dim)

    def onehot() -> Tensor:
        numbers = xp.arange(input.shape[dim], dtype=place.dtype)
        classes = numbers.reshape(-1, *[1] * (input.ndim - 1 - dim))
        here = from_array(classes, None, input.device) == from_array(place, None, input.device)
        return here.to(input.dtype)

    return found, onehot


def _total(
    loss: Tensor,
    input: Tensor,
    target: Tensor,
    kept: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    scale_loss: bool = True,
) -> Tensor:
    """Weigh, leave out what is ignored, and reduce."""
    scale = None if weight is None else _weights(weight, target)
    if scale is not None and scale_loss:
        loss = loss * scale
    if kept is not None:
        loss = loss.where(kept, 0.0)
        scale = kept.to(loss.dtype) if scale is None else scale * kept
    if reduction == "mean" and scale is not None:
        return loss.sum() / scale.sum()
    return reduce_loss(loss, reduction)
