"""Activations that take weights, halves, thresholds or random slopes: compositions."""

from __future__ import annotations

from typing import Any

from lucid_gpu.dtypes import unimplemented
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.arguments import require_float, require_one_device, require_tensor, takes_out
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.ops.elementwise import factors_in, leaky_relu, operand, piecewise, unrounded
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.random_numbers import _uniform
from lucid_gpu.ops.record import composes, keeping, keeps
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.softmax import softmax
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import Truth, body_of, op
from lucid_gpu.tensor import Tensor, apply

__all__ = ["glu", "gumbel_softmax", "hardshrink", "prelu", "rrelu", "softshrink", "threshold"]


@op(whole=True)
@takes_out
@keeping("input", title="ThresholdBackward0")
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """``x`` where it is above ``threshold``, else ``value``; elementwise.

    Raises
    ------
    NotImplementedError
        For bool and complex.
    """
    require_tensor("threshold", "input", 1, input)
    if input.dtype.category not in (1, 2):
        raise unimplemented("threshold", input.dtype)
    threshold, value = factors_in(input.dtype, threshold, value)
    x = piecewise(input)
    return apply(TABLE["where"], unrounded(x) <= threshold, value, x).to(input.dtype)


@op(whole=True)
@takes_out
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` outside ``[-lambd, lambd]``, zero inside; elementwise.

    NotImplementedError for integers, bool and complex.
    """
    require_float("hardshrink", input)
    x = piecewise(input)
    inside = (x >= -lambd).logical_and(x <= lambd)
    return keeps(apply(TABLE["where"], inside, 0.0, x), input, title="HardshrinkBackward0")


@op(whole=True)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Elements moved toward zero by ``lambd``, and zero within it.

    Raises
    ------
    RuntimeError
        For a negative ``lambd``.
    NotImplementedError
        For integers, bool and complex.
    """
    require_float("softshrink", input)
    if lambd < 0:
        raise RuntimeError(
            f"lambda must be in range [0, inf) for input dtype {input.dtype.name}, but found "
            f"{lambd}"
        )
    x = piecewise(input)
    compared = unrounded(x)
    none = input.detach() * 0  # NaN stays NaN; a gradient that is infinite does not come through
    inner = apply(TABLE["where"], compared < -lambd, x + lambd, none)
    moved = apply(TABLE["where"], compared > lambd, x - lambd, inner)
    return keeps(moved, input, title="SoftshrinkBackward0")


@op(autocast="lower", whole=True)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``x`` where positive, else ``weight * x``; He et al., "Delving Deep into Rectifiers" (2015).

    Parameters
    ----------
    input : Tensor, shape (n, c, *) or any
    weight : Tensor, shape (c,), (1,) or ()
        A slope for each channel, or one for all.

    Raises
    ------
    RuntimeError
        For weights of another number, dtype or more dimensions.
    """
    require_tensor("prelu", "input", 1, input)
    require_tensor("prelu", "weight", 2, weight)
    require_one_device("prelu", input, weight)
    if weight.ndim > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {input.dtype.type_name} and "
            f"{weight.dtype.type_name}"
        )
    if not input.ndim and weight.numel() != 1:
        raise RuntimeError("Not allow zero-dim input tensor.")
    count = weight.numel()
    channels = input.shape[1] if input.ndim > 1 else 1
    if count not in (1, channels):
        raise RuntimeError(
            "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
            f"{count} and channel size = {channels}."
        )
    slope = weight.reshape(count, *[1] * (input.ndim - 2)) if input.ndim > 1 else weight
    if input.ndim < 1:
        slope = weight.reshape(())
    above = input > 0
    below = apply(TABLE["where"], above, 0.0, input)  # the slope's gradient reads no infinity
    scaled = operand(slope) * operand(below)
    kept = apply(TABLE["where"], above, input, scaled)
    return keeps(kept, input, title="PreluKernelBackward0", operands=(input, slope))


@op(whole=True)
@lying(rule=row_major_order)
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """`leaky_relu` of each element, with slopes of ``[lower, upper]`` in training, or the middle.

    Xu et al., "Empirical Evaluation of Rectified Activations" (2015).

    RuntimeError where ``lower`` is above ``upper``; NotImplementedError for integers, bool and
    complex.
    """
    require_float("rrelu", input)
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    kind, where = input.dtype, input.device
    slope = _uniform(tuple(input.shape), kind, where, None, lower, upper)
    if not costs_of(where).draws_again:
        slope.array  # noqa: B018  NumPy takes longer to draw again than to read
    x = piecewise(input)
    return apply(TABLE["where"], x <= 0, x * slope, x)


@op(whole=True)
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """``a * sigmoid(b)`` of the two halves of a dimension, ``(*, 2 m)``; Dauphin et al. (2017).

    Parameters
    ----------
    input : Tensor
    dim : int
        A dimension of even size ``2 m``, which is ``m`` in the result.

    Raises
    ------
    RuntimeError
        For an odd size, and for a 0-d tensor.
    IndexError
        For a ``dim`` that there is not.
    NotImplementedError
        For whole numbers and bool.
    """
    require_tensor("glu", "input", 1, input)
    if input.dtype.category < 2:
        raise unimplemented("glu", input.dtype, ": convert it with .float()")
    if not input.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    dim = normalize_dim(dim, input.ndim)
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}"
        )
    a, b = input.chunk(2, dim) if input.shape[dim] else (input, input)
    return composes(a * b.sigmoid(), a, b, title="GluBackward0", operands=(input,))


@op(autocast={"cuda": "float32"})
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: Truth = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Samples from the Gumbel-Softmax distribution; Jang et al. (2017), Maddison et al. (2017).

    Parameters
    ----------
    logits : Tensor
        Unnormalized log-probabilities.
    tau : float
        Temperature.
    hard : bool
        Give one-hot vectors, with the gradient of the soft ones.
    eps : float
        Without effect, as in PyTorch.
    dim : int
    """
    require_tensor("gumbel_softmax", "logits", 1, logits)
    if eps != 1e-10:
        warn_user("`eps` parameter is deprecated and has no effect.")
    noise = -zeros_like(logits.detach()).exponential_().log()
    soft: Tensor = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    ones: Any = zeros_like(soft.detach()).scatter(dim, index, 1.0)
    return ones - soft.detach() + soft


METHODS = (op(body_of(prelu), autocast="lower"), hardshrink)  # F.prelu is another object
FUNCTIONS = (prelu, hardshrink, threshold)
