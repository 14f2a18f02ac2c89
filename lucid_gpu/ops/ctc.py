"""Connectionist temporal classification: how likely a sequence is over all its alignments."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.kernels import ctc as kernels
from lucid_gpu.ops.arguments import in_float32, require_tensor
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.cross_entropy import reduce_loss
from lucid_gpu.ops.record import record, watch
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

__all__ = ["ctc_loss"]


@op(autocast="float32")
@in_float32
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """``-log p(target | input)``, summed over all alignments, reduced.

    Parameters
    ----------
    log_probs : Tensor, shape (t, n, c) or (t, c)
        Logarithms of probabilities, as `log_softmax` gives them. The gradient is the one of the
        scores before it, as in PyTorch: only behind `log_softmax` is it right.
    targets : Tensor of int64, shape (n, s), (s,), or all labels one after another
    input_lengths, target_lengths : Tensor or sequence of int, shape (n,) or ()
    blank : int
    reduction : {"mean", "sum", "none"}
        ``"mean"`` divides each loss by its target's length first.
    zero_infinity : bool
        Give 0, and no gradient, where no alignment exists.

    Raises
    ------
    RuntimeError
        For shapes, dtypes or lengths that do not fit together, and a blank that is not a label.
    NotImplementedError
        For log-probabilities of integers.
    """
    require_tensor("ctc_loss", "log_probs", 1, log_probs)
    require_tensor("ctc_loss", "targets", 2, targets)
    single = log_probs.ndim == 2
    scores = log_probs.unsqueeze(1) if single else log_probs
    if scores.ndim != 3:
        raise RuntimeError(
            f"ctc_loss: log_probs must have shape (T, N, C) or (T, C), got {list(log_probs.shape)}"
        )
    if not log_probs.is_floating_point():
        raise dt.unimplemented("ctc_loss", log_probs.dtype)
    if not 0 <= blank < scores.shape[2]:
        raise RuntimeError("blank must be in label range")
    if targets.dtype.category != 1:
        raise RuntimeError(f"ctc_loss: targets must be integers, got {targets.dtype.name}")
    if targets.ndim not in (1, 2):
        raise RuntimeError(
            f"Expected 1 to 2 dimensions, but got {targets.ndim}-dimensional tensor for argument "
            "#2 'targets' (while checking arguments for ctc_loss)"
        )
    times, lengths = _on_host(input_lengths), _on_host(target_lengths)
    for name, numbers in (("input_lengths", times), ("target_lengths", lengths)):
        if numbers.dtype.kind not in "iu":
            raise RuntimeError(f"{name} must be integral")
    shape, rows, flat = tuple(scores.shape), _on_host(targets), targets.ndim == 1
    problem = kernels.states(xp_of(scores), shape, rows, flat, times, lengths, blank)
    losses = _negative_log_likelihood(scores, problem, zero_infinity)
    watch(losses, targets)
    if reduction == "mean":
        sizes = tensor(lengths, dtype=losses.dtype, device=losses.device)
        return (losses / sizes.clamp(min=1)).mean()
    return reduce_loss(losses.squeeze(0) if single and reduction == "none" else losses, reduction)


def _on_host(numbers: Any) -> Any:
    """Whole numbers as an array on the host, a vector at least."""
    values = numbers.detach() if isinstance(numbers, Tensor) else tensor(numbers, dtype=dt.int64)
    array = backend(values.device).to_numpy(values.array)
    return array.reshape(-1) if not array.ndim else array


def _negative_log_likelihood(
    scores: Tensor, problem: kernels.Problem, zero_infinity: bool
) -> Tensor:
    wide = scores.dtype.compute.numpy
    emitted = run_quietly(kernels.emitted, scores.array.astype(wide, copy=False), problem)
    alpha, losses = run_quietly(kernels.log_likelihoods, emitted, problem)
    impossible = problem.xp.isinf(losses)
    value = problem.xp.where(impossible, 0, losses) if zero_infinity else losses

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        (x,) = node.saved_values
        gradient = run_quietly(
            kernels.gradient, x.array.astype(wide), emitted, alpha, losses, problem
        )
        if zero_infinity:
            gradient[:, impossible] = 0
        gradient *= g.array.astype(wide)[:, None]
        array = gradient.astype(x.dtype.numpy, copy=False)
        return (record("CtcLossBackwardBackward0", array, (g, x), _refuse, dtype=x.dtype),)

    value = value.astype(scores.dtype.numpy, copy=False)
    return record("CtcLossBackward0", value, (scores,), vjp, (scores,), scores.dtype)


def _refuse(node: Any, g: Tensor) -> NoReturn:
    raise RuntimeError("derivative for ctc_loss_backward is not implemented")
