"""Cross entropy of scores: one op for class numbers, a composition for class probabilities.

Of class numbers the op keeps one figure a row (all exponentials where a problem is so small that
calls are what costs), and its gradient ``softmax(x) - onehot(target)`` is one pass. On a GPU a
recorded loss that is reduced computes it at once and keeps it in the place of the scores: going
backward multiplies it by the cotangent. Gradients that are recorded or batched are written with
tensor ops.
"""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.core.program import loads_of
from lucid_gpu.devices import backend, owners
from lucid_gpu.devices.device_errors import DeviceError
from lucid_gpu.dtypes import int64, unimplemented
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.kernels import bounds
from lucid_gpu.kernels import cross_entropy as kernels
from lucid_gpu.kernels.cross_entropy import Settings
from lucid_gpu.ops.arguments import in_float32, require_one_device, require_tensor
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.gather import _gathered
from lucid_gpu.ops.in_place import alias_of
from lucid_gpu.ops.record import constant, keeping, record, ties, watch
from lucid_gpu.ops.reductions import arguments_of
from lucid_gpu.ops.softmax import log_softmax, softmax
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array, of_kept

__all__ = ["cross_entropy", "nll_loss", "reduce_loss"]


def require_reduction(reduction: str) -> None:
    """Refuse anything but the names of reductions."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """What ``reduction=`` means: ``"none"``, ``"mean"`` or ``"sum"``."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "elementwise_mean":
        warn_user(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
        )
        return loss.mean()
    require_reduction(reduction)
    return loss if reduction == "none" else loss.sum()


@op
@keeping("input")
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
        If a target is no class. On a GPU a kernel finds that out, and the error is raised where
        the program next waits for the GPU (`item`, `cpu`, `cuda.synchronize`).
    ValueError
        For an input without dimensions.
    """
    if not input.ndim:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    _check_target(input, target)
    _check_weight(input, weight)
    require_weight_dtype(input, weight)
    if input.dtype.category != 2:
        raise unimplemented("nll_loss", input.dtype)
    safe, kept = _safe(input, target, ignore_index)
    picked = ties(_pick(input, safe))
    watch(picked, target)
    return _total(-picked, safe, kept, weight, reduction)


@op
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """``logsumexp(input[n]) - input[n, t]``: the cross entropy of unnormalized scores.

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
        If a target is no class. On a GPU a kernel finds that out: the loss is NaN, and the error
        is raised where the program next waits for the GPU (`item`, `cpu`, `cuda.synchronize`).
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    require_reduction(reduction)
    require_tensor("cross_entropy_loss", "input", 1, input)
    require_tensor("cross_entropy_loss", "target", 2, target)
    if input._expr.program.dtype.category != 2:
        raise unimplemented("cross_entropy", input.dtype, "; scores are floats: input.float()")
    if weight is not None:
        _check_weight(input, weight)
    if target._expr.program.dtype.category == 2:
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    _check_target(input, target)
    if weight is not None:
        require_weight_dtype(input, weight)
    known = None if weight is None else weight.array
    recorded = state.grad and input._expr.program.needs_grad
    at_once = recorded and not open_levels and not state.hooks
    how = Settings(known, ignore_index, label_smoothing, reduction, False, at_once)
    if weight is not None and weight.requires_grad and label_smoothing:
        return _composed(input, target, weight, how)
    return _by_kernel(input, target, weight, how)


@batching(nll_loss, cross_entropy)
def _class_loss_batched(level: Batch, f: Any, *args: Any, **named: Any) -> Any:
    """One loss an element for all examples as one batch; then each example's own reduction."""
    given = arguments_of(f, args, named)
    x, target, reduction = given.pop("input"), given.pop("target"), given.pop("reduction")
    weight, ignore, smooth = given["weight"], given["ignore_index"], given.get("label_smoothing")
    if (weight is not None and (level.holds(weight) or smooth)) or (smooth and ignore >= 0):
        return NotImplemented
    if target.is_floating_point() or x.ndim not in (1, 2) or target.ndim != x.ndim - 1:
        return NotImplemented
    classes = x.shape[-1]
    flat, numbers = level.full(x).reshape((-1, classes)), level.full(target).reshape(-1)
    each = f(flat, numbers, reduction="none", **given)
    loss = level.wrap(each.reshape((level.size, *target.shape)))
    if reduction != "mean":
        return reduce_loss(loss, reduction)
    numbers = level.wrap(level.full(target))
    counted = (numbers != ignore).to(x.dtype.compute)
    if weight is not None:
        known = level.full(target).clamp(0, classes - 1)
        counted = counted * level.wrap(weight[known])
    return (loss.sum(dtype=x.dtype.compute) / counted.sum()).to(x.dtype)


def _by_kernel(input: Tensor, target: Tensor, weight: Tensor | None, how: Settings) -> Tensor:
    """The losses and their sum, and the gradient, by what `kernels.cross_entropy` chooses."""
    array, program = input.array, input._expr.program
    if owners[type(array)].records:
        how = how._replace(masked=True)
    recorded = state.grad and program.needs_grad
    value, kept = kernels.losses(array, target.array, how)
    saved: tuple[Tensor, ...] = ()
    if kept.ready is not None:
        saved = (target,)
    elif recorded or open_levels:
        read = alias_of(input) if recorded else input  # PyTorch saves log_softmax of it
        saved = target, read, from_array(kept.lse, None, program.device)
        kept = kept._replace(lse=None)
    return record(
        "CrossEntropyBackward0",
        value,
        (input,),
        _gradient,
        saved,
        program.dtype,
        gives_new=True,
        rest=kept,
        how=how,
        weight=weight,
        scores=program,
    )


def _gradient(node: Any, g: Tensor) -> tuple[Tensor]:
    how, kept = node.how, node.rest
    if state.grad or (open_levels and kept.ready is None):
        return (_recorded_gradient(node, g, node.weight, how),)
    numbers, *read = node.saved_values
    if not read:
        return (_times(node, g),)
    x, lse = read
    kept = kept._replace(lse=lse.array)
    gradient = kernels.gradient(x.array, numbers.array, kept, _number_or_array(g), how)
    return (of_kept(loads_of(node.scores)[0], gradient),)


def _times(node: Any, g: Tensor) -> Tensor:
    """The gradient that was computed with the loss, for the cotangent ``g``.

    Its memory is the result's where no other pass may read it.
    """
    ready = of_kept(loads_of(node.scores)[0], node.rest.ready)
    root, task = g._expr.program.root, state.task
    one = root.op == "constant" and root.value[1] == 1
    if open_levels or task is None or task.node is not node or task.retain_graph:
        return ready.clone() if one else ready * g
    node.rest = node.rest._replace(ready=None)
    return ready if one else ready.mul_(g)


def _number_or_array(g: Tensor) -> Any:
    """The value of a cotangent; that of ``loss.backward()`` is a constant."""
    root = g._expr.program.root
    return root.value[1] if root.op == "constant" else g.array


def _recorded_gradient(node: Any, g: Tensor, weight: Tensor | None, how: Settings) -> Tensor:
    """The gradient written with tensor ops: ``(a + b sum(w)) softmax(x) - a onehot(t) - b w``."""
    target, *read = node.saved_values
    x: Any = read[0] if read else of_kept(loads_of(node.scores)[0], node.rest.ready)
    dim, d = _class_dim(x), x.dtype
    kept = target != how.ignore
    safe = target.where(kept, 0)
    weights = 1.0 if weight is None else _weights(weight, safe)
    counts = where(kept, weights, 0.0).to(d.compute)
    # where nothing counts the loss is 0 / 0 and its gradient 0
    count: Any = counts.sum().where(kept.any(), 1.0) if how.reduction == "mean" else 1.0
    own = (counts * (1 - how.smoothing)).unsqueeze(dim)
    total: Tensor = own
    onehot = _onehot(x, safe)
    flat = own * onehot
    if how.smoothing:
        even = how.smoothing / x.shape[dim]
        spread = even if weight is None else _along(weight.detach(), x) * even
        total = own + (how.smoothing if weight is None else spread.sum())
        flat = flat + spread
    if not read:
        x = _scores(node, x, count, total, flat)
    gradient = (softmax(x, dim) * total - flat).where(kept.unsqueeze(dim), 0.0)
    g = g / count
    return (gradient * (g.unsqueeze(dim) if how.reduction == "none" else g)).to(d)


def _scores(node: Any, ready: Tensor, count: Any, total: Tensor, flat: Tensor) -> Tensor:
    """Scores, up to a number a row, of which a gradient was ``(softmax(x) total - flat) / count``.

    Their gradient goes to the input.
    """
    with no_grad():
        softmax = (ready.to(total.dtype) * count + flat) / total
        scores = softmax.clamp(min=0.0).log().where(total != 0, 0.0)
    source = constant(0.0, ready)
    source._attach(*node._edges[0])
    return scores + source


def _composed(input: Tensor, target: Tensor, weight: Tensor | None, how: Settings) -> Tensor:
    """The same written with tensor ops; smoothing gives the weights a gradient."""
    safe, kept = _safe(input, target, how.ignore)
    dim = _class_dim(input)
    scores = log_softmax(input, dim)
    picked = _pick(scores, safe)
    watch(picked, target)
    loss = picked * (how.smoothing - 1)
    if weight is not None:
        loss = loss * _weights(weight, safe)
        scores = scores * _along(weight, input)
    if how.smoothing:
        loss = loss - scores.mean(dim) * how.smoothing
    return _total(loss, safe, kept, weight, how.reduction, False)


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    if target.shape != input.shape:
        _check_batch(input, target)
        raise _no_class_number(target)
    dim = _class_dim(input)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[dim]
    scored = log_softmax(input, dim) * target
    if weight is not None:
        scored = scored * _along(weight, input)
    loss = -scored.sum(dim)
    return reduce_loss(loss, reduction)


_no_class = DeviceError(lambda t, ignore, classes: kernels.out_of_bounds(t, classes, ignore))


def _class_dim(input: Tensor) -> int:
    return 0 if len(input._expr.shape) == 1 else 1


def _along(weight: Tensor, input: Tensor) -> Tensor:
    """Weights of the classes, shaped to broadcast with the scores."""
    return weight.reshape(-1, *[1] * (input.ndim - 1 - _class_dim(input)))


def _weights(weight: Tensor, target: Tensor) -> Tensor:
    """The weight of each target; a constant, as in PyTorch."""
    return from_array(weight.array.take(target.array), weight.dtype, weight.device)


def _check_target(input: Tensor, target: Tensor) -> None:
    require_one_device("cross_entropy", input, target)
    shape, dim = input._expr.shape, _class_dim(input)
    expected = (*shape[:dim], *shape[dim + 1 :])
    if not shape or target._expr.shape != expected:
        _check_batch(input, target)
        if target.shape == input.shape and target.dtype.category < 2:
            raise RuntimeError(
                "Expected floating point type for target with class probabilities, got "
                f"{target.dtype}"
            )
        most = "0D or 1D target tensor expected, multi-target not supported: "
        raise (ValueError if len(shape) == 1 else RuntimeError)(
            f"{most if target.ndim > len(expected) == 1 else ''}Expected target size "
            f"{list(expected)}, got {list(target.shape)}: an input of shape {list(shape)} takes "
            "one class number for each of its score vectors"
        )
    if target._expr.program.dtype.category != 1:
        raise _no_class_number(target)


def _no_class_number(target: Tensor) -> RuntimeError:
    return RuntimeError(
        f"expected target dtype to be Long or Byte, but got {target.dtype} of shape "
        f"{list(target.shape)}: class numbers are integers, target.long(), and probabilities have "
        "the input's shape"
    )


def _check_batch(input: Tensor, target: Tensor) -> None:
    n, m = input.shape[:1], target.shape[:1]
    if input.ndim > 1 and n != m:
        raise ValueError(
            f"Expected input batch_size ({n[0]}) to match target batch_size ({m[0] if m else 0})."
        )


def require_weight_dtype(input: Tensor, weight: Tensor | None) -> None:
    """Refuse weights of classes that are of another type than the scores."""
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            f"expected scalar type {input.dtype.type_name} but found {weight.dtype.type_name} for "
            "the weight"
        )


def _check_weight(input: Tensor, weight: Tensor | None) -> None:
    """One weight a class: a kernel reads them by the target."""
    if weight is None:
        return
    require_one_device("cross_entropy", input, weight)
    classes = input.shape[_class_dim(input)] if input.ndim else 1
    if tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but "
            f"got weight tensor of shape: {list(weight.shape)}"
        )


def _safe(input: Tensor, target: Tensor, ignore: int) -> tuple[Tensor, Tensor | None]:
    """Targets that are all classes, and where they count (None: everywhere).

    On a GPU a kernel looks at them, and its error is raised where the program waits anyway.
    """
    classes = input.shape[_class_dim(input)]
    if not bounds.seen_at_once(input.device):
        target = target.to(int64)  # what has no room for `ignore` would be compared with another
        kept = target != ignore
        safe = target.where(kept, 0)
        bounds.check(safe.array, classes, ignore, input.device, 0, _no_class)
        return safe, kept
    t = target.array
    if not t.size or (t.min() >= 0 and t.max() < classes and not 0 <= ignore < classes):
        return target, None
    kept = t != ignore
    wrong = kept & ((t < 0) | (t >= classes))
    if wrong.any():
        raise kernels.out_of_bounds(int(t[wrong].reshape(-1)[0]), classes, ignore)
    safe = from_array(t * kept, target.dtype, target.device)
    return safe, from_array(kept, None, target.device)


@op
def _pick(input: Tensor, target: Tensor) -> Tensor:
    """``input[n, target[n]]``. On a GPU its adjoint is a comparison, which fuses, not a scatter."""
    dim = _class_dim(input)
    if not costs_of(input.device).compares_places:
        return _gathered("NllLossBackward0", input, dim, target.unsqueeze(dim), keepdim=False)
    classes, rest = input.shape[dim], math.prod(input.shape[dim + 1 :])
    offsets = target * rest  # in memory: one class after the other, `rest` elements apart
    if target.numel() > 1:
        count = _numbers(input, target.numel(), *target.shape)
        offsets = offsets + (count + count // rest * (classes - 1) * rest)
    picked = input.array.reshape(-1).take(offsets.array)

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        return (g.unsqueeze(dim) * _onehot(input, target),)

    return record("NllLossBackward0", picked, (input,), vjp)


def _numbers(beside: Tensor, count: int, *shape: int) -> Tensor:
    where = beside.device
    numbers = backend(where).arange(count, int64, where)
    return from_array(numbers.reshape(shape), int64, where)


def _onehot(input: Tensor, target: Tensor) -> Tensor:
    dim = _class_dim(input)
    classes = _numbers(input, input.shape[dim], -1, *[1] * (input.ndim - 1 - dim))
    return (classes == target.unsqueeze(dim)).to(input.dtype)


def _total(
    loss: Tensor,
    target: Tensor,
    kept: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    scale_loss: bool = True,
) -> Tensor:
    """Weigh, leave out what is ignored, and reduce."""
    if weight is None and kept is None:
        return reduce_loss(loss, reduction)
    scale = None if weight is None else _weights(weight, target)
    return _scaled(loss, scale, kept, reduction, scale_loss)


@in_float32
def _scaled(
    loss: Tensor, scale: Tensor | None, kept: Tensor | None, reduction: str, scale_loss: bool
) -> Tensor:
    if scale is not None and scale_loss:
        loss = loss * scale
    if kept is not None:
        loss = loss.where(kept, 0.0)
        scale = kept.to(loss.dtype) if scale is None else scale * kept
    if reduction == "mean" and scale is not None:
        return loss.sum() / scale.sum()
    return reduce_loss(loss, reduction)
