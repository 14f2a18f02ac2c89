"""`grad`: the gradients of some inputs, also for many cotangents at once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from lucid_gpu.autograd.backward import (
    cotangent_of,
    cotangents_of,
    described,
    gradients,
    one_each,
    sequence_of,
    targets_of,
)
from lucid_gpu.ops.record import constant
from lucid_gpu.tape.overrides import UNHANDLED, changed, handled, handling
from lucid_gpu.tensor import Tensor

__all__ = ["grad"]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of ``outputs`` with respect to ``inputs``, leaving every ``.grad`` alone.

    Parameters
    ----------
    outputs : Tensor or GradientEdge, or sequence of them
    inputs : Tensor or GradientEdge, sequence of them, or dict of Tensor
    grad_outputs : Tensor or sequence of Tensor or None
        Cotangents; may be left out for real outputs of one element.
    retain_graph : bool, optional
        Keep what was saved for another pass; by default the value of ``create_graph``.
    create_graph : bool
        Record the pass itself, for higher derivatives.
    only_inputs : bool
        PyTorch's, deprecated: gradients of other leaves are `backward`'s.
    allow_unused : bool, optional
        Give None for inputs the outputs do not depend on, instead of raising; by default the value
        of ``materialize_grads``.
    is_grads_batched : bool
        The first dimension of every cotangent counts cotangents, that of every result gradients.
    materialize_grads : bool
        Give zeros for inputs the outputs do not depend on.

    Returns
    -------
    tuple of Tensor or None, or dict of them
        One for each input, of its shape; None for unused inputs with ``allow_unused``.

    Raises
    ------
    RuntimeError
        For an unused input without ``allow_unused`` or ``materialize_grads``; for an empty list of
        inputs, or inputs that are not tensors; for tensors and gradients of different numbers.
    TypeError
        For inputs that are a mapping other than a dict, or anything but a sequence of tensors.
    ValueError
        If ``materialize_grads`` is True and ``allow_unused`` is False.
    """
    if handling:
        given = changed(
            grad_outputs=(grad_outputs, None),
            retain_graph=(retain_graph, None),
            create_graph=(create_graph, False),
            only_inputs=(only_inputs, True),
            allow_unused=(allow_unused, None),
            is_grads_batched=(is_grads_batched, False),
            materialize_grads=(materialize_grads, False),
        )
        if (answer := handled(grad, (outputs, inputs), given)) is not UNHANDLED:
            return answer
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use "
            "lucid_gpu.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    results, targets = sequence_of(outputs), targets_of(inputs, "grad")
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        grads = _batched(results, targets, one_each(grad_outputs, len(results)), keep, create_graph)
    else:
        cotangents = cotangents_of(results, grad_outputs)
        grads = gradients(results, targets, cotangents, keep, create_graph)
    for i, (gradient, target) in enumerate(zip(grads, targets)):
        if gradient is None:
            grads[i] = _unused(i, target, allow_unused, materialize_grads, create_graph)
    return dict(zip(inputs, grads)) if type(inputs) is dict else tuple(grads)


def _unused(
    i: int, target: Any, allow_unused: bool | None, materialize: bool, create_graph: bool
) -> Tensor | None:
    """What stands for the gradient of an input that the outputs do not depend on."""
    tensor = isinstance(target, Tensor)
    if materialize and not tensor:
        raise RuntimeError(
            "materialize_grads cannot be used when the given input is a GradientEdge: "
            f"inputs[{i}] is one that was not used; pass the tensor itself"
        )
    if materialize:
        zeros = constant(0.0, target)
        return zeros._mark() if create_graph else zeros
    if not allow_unused:
        shape = f", of shape {list(target.shape)}" if tensor else ", a GradientEdge"
        raise RuntimeError(
            f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
            f"Set allow_unused=True if this is the desired behavior. It is inputs[{i}]{shape}."
        )
    return None


# --- many cotangents at once ----------------------------------------------------------------------


def _batched(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    cotangents: Sequence[Any],
    keep: bool,
    create_graph: bool,
) -> list[Any]:
    """One pass on a batch of cotangents, which their first dimension counts."""
    from lucid_gpu.func.vmap import vmap

    for i, (output, cotangent) in enumerate(zip(outputs, cotangents)):
        _check_batched(i, output, cotangent)
    if not cotangents or not cotangents[0].shape[0]:
        return [constant(0.0, t, (0, *t.shape)) for t in inputs]
    reached: list[bool] = []

    def vjp(*some: Tensor) -> tuple[Tensor, ...]:
        part = [cotangent_of(i, outputs[i], c) for i, c in enumerate(some)]
        grads = gradients(outputs, inputs, part, keep, create_graph)
        reached[:] = [g is not None for g in grads]
        return tuple([g for g in grads if g is not None])

    batches = iter(vmap(vjp)(*cotangents))
    return [next(batches) if known else None for known in reached]


def _check_batched(i: int, output: Any, cotangent: Any) -> None:
    if cotangent is None or cotangent.ndim == 0:
        raise ValueError(
            "vmap(vjp, in_dims=0, ...)(<inputs>): Got in_dim=0 for some input, but that input is a "
            f"Tensor of dimensionality 0: with is_grads_batched=True grad_outputs[{i}] needs a "
            "first dimension, one cotangent a row"
        )
    like = output if isinstance(output, Tensor) else described(output)
    shape = list(cotangent.shape[1:])
    if shape != list(like.shape):
        raise RuntimeError(
            "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as "
            "the batch dimension. The sizes of the remaining dimensions are expected to match the "
            "shape of corresponding output, but a mismatch was detected: "
            f"grad_output[{i}] has a shape of {shape} and output[{i}] has a shape of "
            f"{list(like.shape)}. If you only want some tensors in `grad_output` to be considered "
            "batched, consider using vmap."
        )
