"""Losses of regression and of probabilities: elementwise formulas, reduced.

`reduce_loss` of `ops.cross_entropy` is the one table of reductions. All are compositions, but for
`binary_cross_entropy`, whose gradient stays finite where the loss is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucid_gpu.dtypes import bool as bool_type
from lucid_gpu.dtypes import unimplemented
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.arguments import (
    in_float32,
    require_float,
    require_one_device,
    require_tensor,
    require_tensors,
)
from lucid_gpu.ops.cross_entropy import reduce_loss
from lucid_gpu.ops.record import composes, keeping, keeps, record
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, apply

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
]

Flag = bool | None
Loss = Callable[[Tensor, Tensor], Tensor]


def reduction_of(size_average: Flag, reduce: Flag, reduction: str) -> str:
    """What PyTorch's two older flags say, where one is given; else ``reduction`` itself."""
    if size_average is None and reduce is None:
        return reduction
    for flag in (size_average, reduce):
        if isinstance(flag, Tensor) and flag.numel() != 1:
            raise RuntimeError(
                "Boolean value of Tensor with more than one value is ambiguous: a loss takes its "
                "settings first and tensors when it is called, as in MSELoss()(input, target)"
            )
    summed, single = [flag is not None and not flag for flag in (size_average, reduce)]
    old = "none" if single else "sum" if summed else "mean"
    warn_user(
        f"size_average and reduce args will be deprecated, please use reduction='{old}' instead.",
    )
    return old


def _same_size(op: str, input: Tensor, target: Tensor) -> None:
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)):
        require_tensors(op, input=input, target=target)
    if input._expr.shape != target._expr.shape:
        warn_user(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
        )


def _difference(op: str, input: Tensor, target: Tensor) -> Tensor:
    """``input - target`` as floats, of which one may be given as bool."""
    first, second = input._expr.program.dtype, target._expr.program.dtype
    if first is bool_type:
        input = input.to(second)
    elif second is bool_type:
        target, second = target.to(first), first
    d = target if second is bool_type else input - target
    require_float(op, d)
    return d


def _weighted(
    loss: Loss, input: Tensor, target: Tensor, weight: Tensor | None, reduction: str
) -> Tensor:
    """Reduced; a mean is over the weights."""
    if weight is None:
        return reduce_loss(loss(input, target), reduction)
    if tuple(weight.shape) != tuple(input.shape):
        raise ValueError("Weights and input must have the same size.")
    return _of_weights(loss, input, target, weight, reduction)


@in_float32
def _of_weights(
    loss: Loss, input: Tensor, target: Tensor, weight: Tensor, reduction: str
) -> Tensor:
    weighed = loss(input, target) * weight
    return weighed.sum() / weight.sum() if reduction == "mean" else reduce_loss(weighed, reduction)


@op(autocast="float32", whole=True)
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Mean squared error: ``(input - target)^2``, reduced.

    Parameters
    ----------
    input, target : Tensor, of one shape
        A warning tells where they only broadcast to one.
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}
    weight : Tensor, of input's shape, optional
        Factors of the elements; a mean is divided by their sum.

    Returns
    -------
    Tensor, shape (), or input's for "none"

    Raises
    ------
    ValueError
        For weights of another shape, and another reduction.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size("mse_loss", input, target)
    return _weighted(_squared, input, target, weight, reduction)


def _squared(input: Tensor, target: Tensor) -> Tensor:
    squares = _difference("mse_loss", input, target).square()
    return keeps(squares, input, target, title="MseLossBackward0")


@op(autocast="float32")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Mean absolute error: ``abs(input - target)``, reduced; all else as in `mse_loss`."""
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size("l1_loss", input, target)
    return _weighted(lambda x, t: (x - t).abs(), input, target, weight, reduction)


@op(autocast="float32", whole=True)
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """``d^2 / (2 beta)`` where ``d = abs(input - target) < beta``, else ``d - beta / 2``, reduced.

    Girshick, "Fast R-CNN" (2015).

    Parameters
    ----------
    input, target : Tensor, of one shape
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}
    beta : float
        0 for `l1_loss`; RuntimeError for less.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size("smooth_l1_loss", input, target)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    d = _difference("smooth_l1_loss", input, target)
    bent = apply(TABLE["bent"], d, beta) / beta if beta else d.abs()
    loss = keeps(bent, input, target, title="SmoothL1LossBackward0")
    return reduce_loss(loss, reduction)


@op(autocast="float32", whole=True)
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """``d^2 / 2`` of ``d = abs(input - target)``, beyond ``delta`` ``delta (d - delta / 2)``.

    Huber, "Robust Estimation of a Location Parameter" (1964).

    Parameters
    ----------
    input, target : Tensor, of one shape
    reduction : {"mean", "sum", "none"}
    delta : float
        Positive.
    weight : Tensor, of input's shape, optional

    Raises
    ------
    RuntimeError
        For a ``delta`` that is not positive.
    TypeError
        For a complex one.
    ValueError
        For weights of another shape.
    NotImplementedError
        For integers, bool and complex.
    """
    _same_size("huber_loss", input, target)
    if isinstance(delta, complex):
        raise TypeError("huber_loss(): argument 'delta' (position 4) must be float, not complex")
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    require_float("huber_loss", input)

    def loss(x: Tensor, t: Tensor) -> Tensor:
        bent = apply(TABLE["bent"], _difference("huber_loss", x, t), delta)
        return keeps(bent, x, t, title="HuberLossBackward0")

    if weight is None or reduction != "mean":
        return _weighted(loss, input, target, weight, reduction)
    each = _weighted(loss, input, target, weight, "none")
    return each.mean()  # not over the sum of weights, as of mse


@op(autocast="float32")
@in_float32
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Kullback-Leibler divergence: ``target * (log(target) - input)``, reduced.

    Parameters
    ----------
    input : Tensor, any shape
        Log-probabilities.
    target : Tensor, broadcast with input
        Probabilities, or with ``log_target`` their logarithms.
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"batchmean", "mean", "sum", "none"}
        ``"batchmean"`` divides the sum by the size of the first dimension, which is the divergence.
    log_target : bool

    Raises
    ------
    RuntimeError
        For integers and complex numbers.
    """
    require_tensors("kl_div", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction == "mean":
        warn_user(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition"
            ".'mean' will be changed to behave the same as 'batchmean' in the next major release.",
        )
    if input.dtype.category != 2 or target.dtype.category != 2:
        raise RuntimeError(
            "kl_div: Integral inputs not supported, nor complex ones; got "
            f"{input.dtype.name} and {target.dtype.name}"
        )
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target * apply(TABLE["where"], target == 0, 1.0, target).log() - target * input
    if reduction != "batchmean":
        return reduce_loss(loss, reduction)
    return loss.sum() / input.shape[0] if input.ndim else loss.sum()


@op
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """``(log(v) + (input - target)^2 / v) / 2`` with ``v = max(var, eps)``, reduced.

    Nix and Weigend, "Estimating the mean and variance of the target probability distribution"
    (1994).

    Parameters
    ----------
    input, target : Tensor, of one shape
        Expectations, and samples.
    var : Tensor or float
        Variances: of input's shape, with a last dimension of 1, or without the last dimension. The
        gradient does not see that they are cut off at ``eps``.
    full : bool
        Add the constant ``log(2 pi) / 2``.
    eps : float
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    ValueError
        For negative variances or those of another shape, and another reduction.
    """
    require_tensors("gaussian_nll_loss", input=input, target=target)
    shape = tuple(input.shape)
    variances: Tensor = var if isinstance(var, Tensor) else input.new_ones(shape) * float(var)
    if bool((variances < 0).any()):
        raise ValueError("var has negative entry/entries")
    var = _per_element(variances, shape)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    v = apply(TABLE["where"], var < eps, var - var.detach() + eps, var)
    loss = 0.5 * (v.log() + (input - target).square() / v)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss(loss, reduction)


def _per_element(var: Tensor, shape: tuple[int, ...]) -> Tensor:
    own = tuple(var.shape)
    if own == shape[:-1] and own != shape:
        return var.unsqueeze(-1)
    apart = [n for m, n in zip(shape, own) if m != n]
    if own != shape and (len(own) != len(shape) or apart != [1]):
        raise ValueError(
            f"var is of incorrect size: {list(own)} for an input of shape {list(shape)}"
        )
    return var


@op(autocast="float32")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Flag = None,
    eps: float = 1e-8,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``exp(input) - target * input``, or ``input - target * log(input + eps)``, reduced.

    Parameters
    ----------
    input, target : Tensor, of one shape
        Logarithms of expectations, or with ``log_input=False`` the expectations, and samples.
    log_input : bool
        Whether the input is logarithms.
    full : bool
        Add Stirling's approximation of ``log(target!)`` for targets above 1.
    eps : float
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}
    """
    require_tensors("poisson_nll_loss", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + apply(TABLE["where"], target <= 1, 0.0, stirling)
    return reduce_loss(loss, reduction)


# --- of probabilities -----------------------------------------------------------------------------


@op(autocast={"cpu": "float32", "cuda": "refuse"})
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``-(target * log(input) + (1 - target) * log(1 - input))``, reduced.

    Logarithms are cut off at -100, and the denominator of the gradient at 1e-12, as in PyTorch.

    Parameters
    ----------
    input, target : Tensor, of one shape
        Probabilities.
    weight : Tensor, optional
        Of each element; broadcasts.
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    ValueError
        For targets of another shape.
    RuntimeError
        For targets of another dtype, and on the CPU for elements outside ``[0, 1]``.
    NotImplementedError
        For integers, bool and complex.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    require_tensor("binary_cross_entropy", "input", 1, input)
    require_tensor("binary_cross_entropy", "target", 2, target)
    require_one_device("binary_cross_entropy", input, target, weight)
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    if target.dtype is not input.dtype:
        raise RuntimeError(
            f"Found dtype {target.dtype.type_name} but expected {input.dtype.type_name}"
        )
    require_float("binary_cross_entropy", input)
    if not open_levels and input.device.type == "cpu":
        for role, t in (("input", input), ("target", target)):
            a = t.detach().array
            if not ((a >= 0) & (a <= 1)).all():
                raise RuntimeError(f"all elements of {role} should be between 0 and 1")
    loss = _cut_off(input, target)
    if weight is not None:
        loss = (loss * weight.expand(tuple(input.shape))).to(loss.dtype)
    return reduce_loss(loss, reduction)


@op
def _cut_off(input: Tensor, target: Tensor) -> Tensor:
    with no_grad():
        x, t = input.detach(), target.detach()
        far = (-x).log1p().clamp(min=-100.0)
        loss = (t - 1) * far - t * x.log().clamp(min=-100.0)
    return record(
        "BinaryCrossEntropyBackward0", loss, (input, target), _cut_off_vjp, saved=(input, target)
    )


def _cut_off_vjp(node: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, t = node.saved_values
    of_input, of_target = node.needs_input_grad
    gx = g * (x - t) / ((1 - x) * x).clamp(min=1e-12) if of_input else None
    return gx, g * ((-x).log1p() - x.log()) if of_target else None


@batching(_cut_off)
def _cut_off_batched(level: Batch, f: Any, x: Tensor, target: Tensor) -> Any:
    return level.wrap(f(level.full(x), level.full(target)))


@op(autocast="float32", whole=True)
@keeping("input", "target", "weight", "pos_weight")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """``-(pos_weight * t * log(sigmoid(x)) + (1 - t) * log(1 - sigmoid(x)))``, reduced.

    Parameters
    ----------
    input, target : Tensor, of one shape
        Scores, and numbers from 0 to 1.
    weight : Tensor, optional
        Of each element; broadcasts.
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}
    pos_weight : Tensor, optional
        Weight of the positive part; broadcasts.

    Raises
    ------
    ValueError
        For targets of another shape.
    RuntimeError
        For targets of integers.
    NotImplementedError
        For scores of integers.
    """
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)):
        require_tensors("binary_cross_entropy_with_logits", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    d, given = input._expr.program.dtype, target._expr.program.dtype
    if target._expr.shape != input._expr.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    if given.category < d.category:
        raise RuntimeError(
            f"result type {d.type_name} can't be cast to the desired output type "
            f"{given.type_name}: give targets as floats, target.to(input.dtype)"
        )
    if d.category < 2:
        raise unimplemented("log_sigmoid_cpu", d)
    below = input < 0  # each branch is the whole function, and loses no digits of its gradient
    curve = apply(TABLE["where"], below, input, -input).exp().log1p()
    positive = target if pos_weight is None else pos_weight * target
    if pos_weight is not None:
        curve = curve * ((pos_weight - 1) * target + 1)
    loss = input * apply(TABLE["where"], below, -positive, 1 - target) + curve
    if weight is not None:
        loss = loss * weight
    read = [t for t in (input, target, weight, pos_weight) if t is not None]
    title = "BinaryCrossEntropyWithLogitsBackward0"
    composes(loss, *read, title=title, operands=(input, target))
    return reduce_loss(loss, reduction)
