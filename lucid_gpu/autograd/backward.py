"""The two ways to ask for gradients."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from lucid_gpu.autograd.graph import GradientEdge
from lucid_gpu.autograd.passes import edge_of, gradients, observed, roots_of, run
from lucid_gpu.fusion import expression
from lucid_gpu.fusion.expression import Expr
from lucid_gpu.ops.record import constant
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tensor import Tensor, _tensor


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add to the ``.grad`` of leaves the gradient of ``tensors``.

    Parameters
    ----------
    tensors : Tensor or GradientEdge, or sequence of them
    grad_tensors : Tensor or sequence of Tensor or None
        Cotangents; may be left out for real tensors of one element.
    retain_graph : bool, optional
        Keep what was saved for another pass; by default the value of ``create_graph``.
    create_graph : bool
        Record the pass itself, for higher derivatives.
    grad_variables
        The old name of ``grad_tensors``.
    inputs : Tensor or GradientEdge, sequence of them, or dict of Tensor, optional
        Accumulate into these only; those that are no leaves keep their gradient as by
        `Tensor.retain_grad`.

    Raises
    ------
    RuntimeError
        Where nothing requires grad, a cotangent does not fit, or the graph was freed.
    TypeError
        For ``inputs`` that are a mapping and no dict, and for what is no sequence of tensors.
    """
    if grad_variables is not None:
        grad_tensors = _renamed(grad_tensors, grad_variables)
    targets = None if inputs is None else _inputs(inputs, "backward")
    outputs = _sequence(tensors)
    cotangents = _cotangents(outputs, grad_tensors)
    if open_levels and create_graph:
        _refuse_wrapped([*outputs, *cotangents])
    roots = roots_of(outputs, cotangents)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph:
        _warn_of_cycle()
    if targets is None:
        run(roots, keep, create_graph)
        return
    for target in targets:
        if isinstance(target, Tensor):
            target.retain_grad()
    observed(roots, keep, create_graph, [edge_of(t) for t in targets], accumulate=True)


@functools.cache
def _warn_of_cycle() -> None:
    """Warn once, as PyTorch does; here the cycle is collected."""
    warn_user(
        "Using backward() with create_graph=True will create a reference cycle between the "
        "parameter and its gradient which can cause a memory leak. We recommend using "
        "autograd.grad when creating the graph to avoid this. If you have to use this function, "
        "make sure to reset the .grad fields of your parameters to None after use to break the "
        "cycle and avoid the leak."
    )


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
        One an input, of its shape; None for unused inputs where ``allow_unused``.

    Raises
    ------
    RuntimeError
        For an input that was not used, unless ``allow_unused`` or ``materialize_grads`` says that
        it may; for inputs that are none or no tensors; where tensors and gradients differ in
        number.
    TypeError
        For inputs that are a mapping and no dict, and for what is no sequence of tensors.
    ValueError
        Where ``materialize_grads`` is asked for and ``allow_unused`` is False.
    """
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
    results, targets = _sequence(outputs), _inputs(inputs, "grad")
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        found = _batched(results, targets, _given(grad_outputs, len(results)), keep, create_graph)
    else:
        cotangents = _cotangents(results, grad_outputs)
        found = gradients(results, targets, cotangents, keep, create_graph)
    for i, (gradient, target) in enumerate(zip(found, targets)):
        if gradient is None:
            found[i] = _unused(i, target, allow_unused, materialize_grads, create_graph)
    return dict(zip(inputs, found)) if type(inputs) is dict else tuple(found)


def _refuse_wrapped(tensors: Sequence[Any]) -> None:
    if innermost(tensors) is not None:
        raise RuntimeError(
            "backward(create_graph=True) of a tensor that carries a tangent or a batch would leave "
            ".grad without it; use autograd.grad(outputs, inputs, create_graph=True), whose "
            "results carry it."
        )


attach(Tensor, _go_backward=backward)


# --- inputs ---------------------------------------------------------------------------------------


def _inputs(given: Any, caller: str) -> Sequence[Any]:
    if type(given) is dict:
        given = tuple(given.values())
    elif isinstance(given, Mapping):
        raise TypeError(
            f"`inputs` argument to `{caller}()` must be a dict, not {type(given).__name__}. Other "
            "Mapping types are not supported."
        )
    found = _sequence(given)
    if not found:
        raise RuntimeError(f"`inputs` argument to `{caller}()` cannot be empty.")
    for one in found:
        if not isinstance(one, (Tensor, GradientEdge)):
            raise RuntimeError(
                f"all inputs have to be Tensors or GradientEdges, but got {type(one).__name__}"
            )
    return found


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
        return zeros.requires_grad_() if create_graph else zeros
    if not allow_unused:
        shape = f", of shape {list(target.shape)}" if tensor else ", a GradientEdge"
        raise RuntimeError(
            f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
            f"Set allow_unused=True if this is the desired behavior. It is inputs[{i}]{shape}."
        )
    return None


# --- outputs and their cotangents -----------------------------------------------------------------


def _sequence(value: Any) -> Sequence[Any]:
    if isinstance(value, (Tensor, GradientEdge)):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        raise TypeError(
            f"expected a Tensor, a GradientEdge or a sequence of them, but a "
            f"{type(value).__name__} object is not iterable"
        ) from None


def _renamed(grad_tensors: Any, grad_variables: Any) -> Any:
    warnings.warn(
        "`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=3
    )
    if grad_tensors is not None:
        raise RuntimeError(
            "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
            "`backward()`. Please only use `grad_tensors`."
        )
    return grad_variables


def _given(given: Any, count: int) -> Sequence[Any]:
    """One cotangent an output, or None."""
    if given is None:
        return (None,) * count
    if isinstance(given, (Tensor, int, float, complex)):
        given = (given,)
    found = tuple(given)
    if len(found) != count:
        raise RuntimeError(f"got {count} tensors and {len(found)} gradients")
    return found


def _cotangents(outputs: Sequence[Any], given: Any) -> list[Tensor]:
    chosen = _given(given, len(outputs))
    return [_cotangent(i, outputs[i], one) for i, one in enumerate(chosen)]


def _cotangent(i: int, output: Any, given: Any) -> Tensor:
    like = output._expr.program if isinstance(output, Tensor) else _described(output)
    if given is None:
        if isinstance(output, GradientEdge) or output.requires_grad:
            _check_implicit(like)
        return _ones(like)
    if not isinstance(given, Tensor):
        raise TypeError(
            f"gradients can be either Tensors or None, but got {type(given).__name__} "
            f"for grad_output[{i}]"
        )
    if tuple(given.shape) != tuple(like.shape):
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {given.shape} and output[{i}] has "
            f"a shape of {_shape(output, like)}."
        )
    if given.device is not like.device:
        if given.ndim:
            raise RuntimeError(
                f"invalid gradient at index {i} - expected device {like.device} but got "
                f"{given.device}"
            )
        given = given.to(like.device)  # a number, as PyTorch takes it
    return _typed(i, given, like)


def _ones(like: Any) -> Tensor:
    """A cotangent that takes no memory; its program is looked up."""
    if isinstance(like, Tensor):
        like = like._expr.program
    program = like.gradients.get("ones")
    if program is None:
        made = expression.of_constant(1.0, like.dtype, like.shape, like.device)
        program = like.gradients["ones"] = made.program
    return _tensor(Expr(program, (), None))


def _shape(output: Any, like: Any) -> Any:
    return output.shape if isinstance(output, Tensor) else list(like.shape)


def _typed(i: int, given: Tensor, like: Any) -> Tensor:
    """A cotangent in the type of the output."""
    if given.dtype is like.dtype:
        return given
    if given.dtype.is_complex != like.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[{i}] has a dtype of {given.dtype} and output[{i}] has "
            f"a dtype of {like.dtype}."
        )
    return given.to(like.dtype)


def _described(edge: GradientEdge) -> Any:
    """What has the shape, type and device of the tensor an edge stands for."""
    known = edge.node._input_metadata
    found = known[edge.output_nr] if edge.output_nr < len(known) else None
    if found is None:
        raise RuntimeError(
            f"{edge.node.name()} does not know what its output {edge.output_nr} looks like; pass "
            "the tensor instead of a GradientEdge"
        )
    return found


def _check_implicit(like: Any) -> None:
    """Refuse what has no obvious cotangent."""
    if any(n != 1 for n in like.shape):
        raise RuntimeError(
            f"grad can be implicitly created only for scalar outputs; this one has shape "
            f"{list(like.shape)}: pass backward(gradient) or take .sum() first"
        )
    if not like.dtype.is_floating_point:
        raise RuntimeError(
            "grad can be implicitly created only for real scalar outputs but got "
            f"{like.dtype}: pass backward(gradient)"
        )


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
        part = [_cotangent(i, outputs[i], c) for i, c in enumerate(some)]
        found = gradients(outputs, inputs, part, keep, create_graph)
        reached[:] = [g is not None for g in found]
        return tuple([g for g in found if g is not None])

    batches = iter(vmap(vjp)(*cotangents))
    return [next(batches) if known else None for known in reached]


def _check_batched(i: int, output: Any, cotangent: Any) -> None:
    if cotangent is None or cotangent.ndim == 0:
        raise ValueError(
            "vmap(vjp, in_dims=0, ...)(<inputs>): Got in_dim=0 for some input, but that input is a "
            f"Tensor of dimensionality 0: with is_grads_batched=True grad_outputs[{i}] needs a "
            "first dimension, one cotangent a row"
        )
    like = output._expr.program if isinstance(output, Tensor) else _described(output)
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
