"""Losses with a margin, and the distances that some of them take: compositions, reduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.arguments import (
    guarded,
    in_float32,
    require_float,
    require_one_device,
    require_tensors,
)
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.cross_entropy import reduce_loss, require_reduction, require_weight_dtype
from lucid_gpu.ops.elementwise import _clamp_min, logsigmoid
from lucid_gpu.ops.losses import Flag, reduction_of
from lucid_gpu.ops.record import keeping, keeps
from lucid_gpu.ops.reductions import _norm, _sum, expand_lazily
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tensor import Tensor, apply

__all__ = [
    "cosine_embedding_loss",
    "cosine_similarity",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "pairwise_distance",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def _positive(t: Any) -> Tensor:
    return apply(TABLE["clamp_min"], t, 0.0)


# --- distances ------------------------------------------------------------------------------------


@op
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """``norm(x1 - x2 + eps, p)`` over the last dimension.

    Parameters
    ----------
    x1, x2 : Tensor, shape (n, d) or (d,), which broadcast
    p, eps : float
    keepdim : bool
        Whether the last dimension stays, of size 1.

    Returns
    -------
    Tensor, shape (n,), () or with keepdim (n, 1), (1,)
    """
    distance: Tensor = (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)
    return distance


@op(autocast={"cuda": "float32"})
@guarded
@in_float32
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """``x1 . x2 / (max(|x1|, eps) max(|x2|, eps))`` over a dimension.

    Parameters
    ----------
    x1, x2 : Tensor
        Of shapes that broadcast.
    dim : int
        Of the shape that they broadcast to; the result lacks it.
    eps : float

    Raises
    ------
    RuntimeError
        For integers.
    IndexError
        If there is no such dimension.
    """
    first, second = x1._expr.program.dtype, x2._expr.program.dtype
    common = first if first is second else dt.promote_types(first, second)
    if common.category < 2:
        raise RuntimeError(
            "expected common dtype to be floating point, yet common dtype is "
            f"{common.name}; convert with .float()"
        )
    a = x1 if first is common else x1.to(common)
    b = x2 if second is common else x2.to(common)
    rank = max(a.ndim, b.ndim)
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{dim})"
        )
    if a._expr.shape != b._expr.shape:
        shape = tuple((a * b).shape)
        a, b = expand_lazily(a, shape), expand_lazily(b, shape)
    first_length = _clamp_min(_norm(a, 2, dim, True), eps)
    second_length = _clamp_min(_norm(b, 2, dim, True), eps)
    return _sum((a / first_length) * (b / second_length), dim, False)


# --- margins of pairs and triplets ----------------------------------------------------------------


@op(autocast="float32")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``input`` where the target is 1, ``max(0, margin - input)`` where it is -1, reduced.

    Parameters
    ----------
    input, target : Tensor
        Of shapes that broadcast; targets are 1 and -1.
    margin : float
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}
    """
    require_tensors("hinge_embedding_loss", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    apart = apply(TABLE["where"], target != 1, _positive(margin - input), 0.0)
    loss = apart + apply(TABLE["where"], target != -1, input, 0.0)
    return reduce_loss(loss.to(input.dtype) if input.dtype.category < 2 else loss, reduction)


@op(autocast="float32")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, -target * (input1 - input2) + margin)``, reduced.

    Parameters
    ----------
    input1, input2, target : Tensor
        Of shapes that broadcast and are of one rank, else RuntimeError; targets are 1 and -1.
    margin : float
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}
    """
    require_tensors("margin_ranking_loss", input1=input1, input2=input2, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduce_loss(_positive(-target * (input1 - input2) + margin), reduction)


@op(autocast="float32")
@in_float32
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1, reduced.

    Parameters
    ----------
    input1, input2 : Tensor, shape (n, d) or (d,)
    target : Tensor, shape (n,) or ()
    margin : float
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    RuntimeError
        For tensors of other ranks.
    """
    require_tensors("cosine_embedding_loss", input1=input1, input2=input2, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    if target.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if any(t.ndim != target.ndim + 1 for t in (input1, input2)):
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
            f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    product = (input1 * input2).sum(-1)
    lengths = [t.square().sum(-1) + 1e-12 for t in (input1, input2)]
    cos = product / (lengths[0] * lengths[1]).sqrt()
    near = apply(TABLE["where"], target == 1, 1 - cos, 0.0)
    return reduce_loss(
        near + apply(TABLE["where"], target == -1, _positive(cos - margin), 0.0), reduction
    )


@op(autocast="float32")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``, reduced.

    Parameters
    ----------
    anchor, positive, negative : Tensor, shape (n, d) or (d,)
    margin : float
        Positive.
    p, eps : float
        Of `pairwise_distance`.
    swap : bool
        Take the negative's distance from the positive where that is smaller (Balntas et al.,
        "Learning shallow convolutional feature descriptors with triplet losses", 2016).
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    ValueError
        For a margin that is not positive.
    RuntimeError
        For tensors of different ranks.
    """
    reduction = reduction_of(size_average, reduce, reduction)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


@op(autocast={"cpu": "float32"})
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` by any distance.

    Parameters
    ----------
    anchor, positive, negative : Tensor
        Of shapes that ``distance_function`` takes.
    distance_function : callable, optional
        Of two tensors; `pairwise_distance` by default.
    margin, swap, reduction
        See `triplet_margin_loss`.
    """
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    require_tensors("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduce_loss(_positive(margin + near - far), reduction)


# --- margins between classes ----------------------------------------------------------------------


@op(autocast="float32", whole=True)
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``log(1 + exp(-target * input))``, reduced.

    Parameters
    ----------
    input, target : Tensor
        Of shapes that broadcast; targets are 1 and -1.
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    RuntimeError
        For scores that are not real floats, and complex targets.
    """
    require_tensors("soft_margin_loss", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    if input.dtype.category != 2 or target.dtype.category > 2:
        raise RuntimeError(
            f"soft_margin_loss: scores are real floats, got {input.dtype.name} and targets of "
            f"{target.dtype.name}"
        )
    return reduce_loss(
        keeps(-logsigmoid(target * input), input, target, title="SoftMarginLossBackward0"),
        reduction,
    )


@op
@in_float32
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of ``-(t log(sigmoid(x)) + (1 - t) log(sigmoid(-x)))``, reduced.

    Parameters
    ----------
    input, target : Tensor, shape (*, c)
    weight : Tensor, shape (c,), optional
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}
    """
    require_tensors("multilabel_soft_margin_loss", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    classes = input.ndim - 1  # also where the target broadcasts it to more dimensions
    return reduce_loss(loss.sum(classes) / input.shape[classes], reduction)


def _as_rows(name: str, input: Tensor) -> Tensor:
    if input.ndim > 2 or not (input.shape[-1] if input.ndim else 1):
        raise RuntimeError(
            f"{name}: Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    return input if input.ndim == 2 else input.reshape(1, -1)


def _require_long(target: Tensor) -> None:
    if target.dtype is not dt.int64:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype.type_name}")


@op(autocast="float32")
@keeping("input")
@in_float32
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_i max(0, margin - x[t] + x[i])^p / c`` over the other classes, reduced.

    Parameters
    ----------
    input : Tensor, shape (n, c) or (c,)
    target : Tensor of int64, shape (n,) or ()
    p : {1, 2}
    margin : float
    weight : Tensor, shape (c,), optional
        Of each target's class.
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    ValueError
        For another ``p`` or ``reduction``, and weights that are no vector.
    RuntimeError
        For shapes that do not fit, targets that are not int64, and on the CPU for those that are no
        classes.
    NotImplementedError
        For integers, bool and complex.
    """
    require_tensors("multi_margin_loss", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    require_reduction(reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    x, classes = _as_rows("multi_margin_loss", input), input.shape[-1] if input.ndim else 1
    require_one_device("multi_margin_loss", input, target, weight)
    if target.numel() != x.shape[0] or target.ndim > 1:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{x.shape[0]}], but got "
            f"{list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"inconsistent weight size, expected {classes} but got {list(weight.shape)}"
        )
    require_weight_dtype(input, weight)
    _require_long(target)
    require_float("multi_margin_loss", input)
    column = target.reshape(-1, 1)
    _check_targets(column, 0, classes, "target out of range")
    z = (margin - x.gather(1, column) + x).relu()  # at 0 these two have no slope
    z = z if p == 1 else z * z
    if weight is not None:
        z = z * weight[column]
    others = arange(classes, device=input.device) != column
    loss = (z * others).sum(1) / classes
    return reduce_loss(loss if input.ndim == 2 or target.ndim else loss[0], reduction)


def _check_targets(target: Tensor, low: int, classes: int, words: str) -> None:
    """Only where nobody has to wait: a GPU's `gather` tells by itself, later."""
    if target.device.type != "cpu" or open_levels or not target.numel():
        return
    array = target.array
    if array.min() < low or array.max() >= classes:
        raise RuntimeError(f"{words}: they are class numbers below {classes}")


@op(autocast="float32")
@keeping("input")
@in_float32
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_ij max(0, 1 - (x[t[j]] - x[i])) / c``, ``i`` over what is no target, reduced.

    Parameters
    ----------
    input : Tensor, shape (n, c) or (c,)
    target : Tensor of int64, of input's shape
        Class numbers; they end at the first -1.
    size_average, reduce : bool, optional
        Deprecated; use ``reduction``.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    ValueError
        For another ``reduction``.
    RuntimeError
        For shapes that do not fit, targets that are not int64, and on the CPU for those that are no
        classes.
    NotImplementedError
        For integers, bool and complex.
    """
    require_tensors("multilabel_margin_loss", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    require_reduction(reduction)
    x = _as_rows("multilabel_margin_loss", input)
    require_one_device("multilabel_margin_loss", input, target)
    if tuple(target.shape) != tuple(input.shape):
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    _require_long(target)
    require_float("multilabel_margin_loss", input)
    t, classes = target.reshape(tuple(x.shape)), x.shape[1]
    _check_targets(t, -1, classes, "argument #2 'target' is out of range")
    listed = ((t < 0).long().cumsum(1) == 0).to(x.dtype)
    named = (t.clamp(min=0).unsqueeze(2) == arange(classes, device=input.device)) * listed[
        ..., None
    ]
    times = named.sum(1)  # how often each class is a target
    z = (1 - x.unsqueeze(2) + x.unsqueeze(1)).relu()
    pairs = times.unsqueeze(2) * (times == 0).unsqueeze(1)
    loss = (z * pairs).sum((1, 2)) / classes
    return reduce_loss(loss if input.ndim == 2 else loss[0], reduction)
