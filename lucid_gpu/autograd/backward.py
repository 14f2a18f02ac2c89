"""`backward`, and passes through the graph, from cotangents to gradients of leaves or inputs."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from lucid_gpu.autograd.graph import GradientEdge
from lucid_gpu.core import engine
from lucid_gpu.core.node import FOLLOWS
from lucid_gpu.core.program import SHARED, Program, derived
from lucid_gpu.core.value import Expr
from lucid_gpu.fusion import building
from lucid_gpu.fusion.region import RegionNode, observe, unobserve
from lucid_gpu.fusion.scheduler import begin_pass, end_pass
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.user_warnings import warn_user_once
from lucid_gpu.tape.door import type_name
from lucid_gpu.tape.levels import BACKWARD_INSIDE, innermost, open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.overrides import UNHANDLED, changed, handled, handling
from lucid_gpu.tensor import Tensor, _tensor, store_written

__all__ = [
    "backward",
    "cotangent_of",
    "cotangents_of",
    "described",
    "edge_of",
    "gradients",
    "one_each",
    "run_pass",
    "sequence_of",
    "targets_of",
]


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
        Accumulate into these only; those that are not leaves keep their gradient as by
        `Tensor.retain_grad`.

    Raises
    ------
    RuntimeError
        If nothing requires grad, a cotangent does not fit, or the graph was freed.
    TypeError
        For ``inputs`` that are a mapping and no dict, and for anything but a sequence of tensors.
    """
    if handling:
        given = changed(
            grad_tensors=(grad_tensors, None),
            retain_graph=(retain_graph, None),
            create_graph=(create_graph, False),
            inputs=(inputs, None),
        )
        if handled(backward, (tensors,), given) is not UNHANDLED:
            return
    if state.transforms:
        raise RuntimeError(BACKWARD_INSIDE)
    if grad_variables is not None:
        grad_tensors = _renamed(grad_tensors, grad_variables)
    targets = None if inputs is None else targets_of(inputs, "backward")
    if isinstance(tensors, Tensor) and (grad_tensors is None or isinstance(grad_tensors, Tensor)):
        outputs: Sequence[Any] = (tensors,)
        cotangents = [cotangent_of(0, tensors, grad_tensors)]
    else:
        outputs = sequence_of(tensors)
        cotangents = cotangents_of(outputs, grad_tensors)
    if open_levels and create_graph:
        _refuse_wrapped([*outputs, *cotangents])
    roots = _roots(outputs)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph:
        _warn_of_cycle()
    if targets is None:
        _run(roots, cotangents, keep, create_graph)
        return
    for target in targets:
        if isinstance(target, Tensor):
            target.retain_grad()
    edges = [edge_of(t) for t in targets]
    _run_observed(roots, cotangents, keep, create_graph, edges, accumulate=True)


def _warn_of_cycle() -> None:
    """Warn as PyTorch does; here the cycle is collected."""
    warn_user_once(
        "Using backward() with create_graph=True will create a reference cycle between the "
        "parameter and its gradient which can cause a memory leak. We recommend using "
        "autograd.grad when creating the graph to avoid this. If you have to use this function, "
        "make sure to reset the .grad fields of your parameters to None after use to break the "
        "cycle and avoid the leak."
    )


def _refuse_wrapped(tensors: Sequence[Any]) -> None:
    if innermost(tensors) is not None:
        raise RuntimeError(
            "backward(create_graph=True) of a tensor that carries a tangent or a batch would leave "
            ".grad without it; use autograd.grad(outputs, inputs, create_graph=True), whose "
            "results carry it."
        )


def _run(*arguments: Any) -> dict[Any, Any]:
    """`lucid_gpu.core.engine.backward`: a pass, with which a step of a loop ends."""
    if state.written:
        store_written()
    begin_pass()
    try:
        return engine.backward(*arguments)
    finally:
        end_pass()


attach(Tensor, _go_backward=backward)


# --- gradients of inputs --------------------------------------------------------------------------


def gradients(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    cotangents: Sequence[Tensor],
    keep: bool,
    create_graph: bool,
) -> list[Any]:
    """As `autograd.grad`, with None for inputs the pass does not reach."""
    if open_levels:
        level = innermost([*outputs, *inputs, *cotangents])
        if level is not None:
            grads: list[Any] = level.grad(outputs, inputs, cotangents, keep, create_graph)
            return grads
    return run_pass(outputs, inputs, cotangents, keep, create_graph)


def run_pass(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    cotangents: Sequence[Tensor],
    keep: bool,
    create_graph: bool,
) -> list[Any]:
    """As `gradients`, through the graph of ordinary tensors; cotangents may be batched."""
    edges = [_wanted(i, t) for i, t in enumerate(inputs)]
    roots = _roots(outputs)
    reached = _run_observed(roots, cotangents, keep, create_graph, edges, accumulate=False)
    for gradient in reached.values():
        if not gradient.requires_grad and gradient._wrapper is None:
            building.set_apart(gradient)
        if gradient._expr.program.marks & SHARED:
            gradient._realize()  # before others write what it reads
    return [None if edge[0].aside == FOLLOWS else reached.get(edge) for edge in edges]


def _run_observed(
    roots: Sequence[Any],
    cotangents: Sequence[Tensor],
    keep: bool,
    create_graph: bool,
    edges: Sequence[Any],
    accumulate: bool,
) -> dict[Any, Any]:
    """Run a pass for some inputs; regions are opened where one lies inside."""
    for node, _ in edges:
        observe(node)
    try:
        return _run(roots, cotangents, keep, create_graph, edges, accumulate)
    finally:
        for node, _ in edges:
            unobserve(node)


def targets_of(inputs: Any, caller: str) -> Sequence[Any]:
    """The inputs that ``caller`` is asked for gradients of, checked."""
    if type(inputs) is dict:
        inputs = tuple(inputs.values())
    elif isinstance(inputs, Mapping):
        raise TypeError(
            f"`inputs` argument to `{caller}()` must be a dict, not {type(inputs).__name__}. Other "
            "Mapping types are not supported."
        )
    targets = sequence_of(inputs)
    if not targets:
        raise RuntimeError(f"`inputs` argument to `{caller}()` cannot be empty.")
    for one in targets:
        if not isinstance(one, (Tensor, GradientEdge)):
            raise RuntimeError(
                f"all inputs have to be Tensors or GradientEdges, but got {type(one).__name__}"
            )
    return targets


def edge_of(tensor: Any) -> tuple[Any, int]:
    """The node that a tensor's gradient goes to, and which of its outputs the tensor is."""
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    edge: tuple[Any, int] = tensor._edge()
    return edge


def _wanted(i: int, tensor: Any) -> tuple[Any, int]:
    if isinstance(tensor, Tensor) and not tensor.requires_grad:
        raise RuntimeError(
            f"One of the differentiated Tensors does not require grad: inputs[{i}], of shape "
            f"{list(tensor.shape)}"
        )
    return edge_of(tensor)


def _roots(outputs: Sequence[Any]) -> list[tuple[Any, int]]:
    """Where a pass begins: node and output; RuntimeError for what has no node."""
    roots = []
    for i, output in enumerate(outputs):
        root = edge_of(output)
        node = root[0]
        if node is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        pending = isinstance(node, RegionNode) and isinstance(output, Tensor)
        if pending and not output._expr.program.is_load:
            node.root = weakref.ref(output)
        roots.append(root)
    return roots


# --- outputs and their cotangents -----------------------------------------------------------------


def sequence_of(value: Any) -> Sequence[Any]:
    """One tensor or edge, or several, as a sequence."""
    if isinstance(value, (Tensor, GradientEdge)):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        raise TypeError(
            f"expected a Tensor, a GradientEdge or a sequence of them, but a "
            f"{type_name(value)} object is not iterable"
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


def one_each(grad_outputs: Any, count: int) -> Sequence[Any]:
    """One cotangent an output, or None."""
    if grad_outputs is None:
        return (None,) * count
    if isinstance(grad_outputs, (Tensor, int, float, complex)):
        grad_outputs = (grad_outputs,)
    cotangents = tuple(grad_outputs)
    if len(cotangents) != count:
        raise RuntimeError(f"got {count} tensors and {len(cotangents)} gradients")
    return cotangents


def cotangents_of(outputs: Sequence[Any], grad_outputs: Any) -> list[Tensor]:
    """One cotangent an output: of those given, or one where there is none."""
    chosen = one_each(grad_outputs, len(outputs))
    return [cotangent_of(i, outputs[i], one) for i, one in enumerate(chosen)]


def cotangent_of(i: int, output: Any, cotangent: Any) -> Tensor:
    """The cotangent of output ``i``, checked and of its type."""
    like = output._expr if isinstance(output, Tensor) else described(output)
    if cotangent is None:
        if isinstance(output, GradientEdge) or like.program.needs_grad:
            _check_implicit(like)
        return _ones(like)
    if not isinstance(cotangent, Tensor):
        raise TypeError(
            f"gradients can be either Tensors or None, but got {type(cotangent).__name__} "
            f"for grad_output[{i}]"
        )
    program, known = cotangent._expr.program, like.program
    if cotangent._expr.shape == like.shape and program.device is known.device:
        return _typed(i, cotangent, known) if program.dtype is not known.dtype else cotangent
    if cotangent.shape != like.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {cotangent.shape} and output[{i}] "
            f"has a shape of {_shape(output, like)}."
        )
    if cotangent.device is not known.device:
        if cotangent.ndim:
            raise RuntimeError(
                f"invalid gradient at index {i} - expected device {known.device} but got "
                f"{cotangent.device}"
            )
        cotangent = cotangent.to(known.device)  # a number, as PyTorch takes it
    return _typed(i, cotangent, known)


def _ones(like: Any) -> Tensor:
    """A cotangent that takes no memory; its program is looked up."""
    program, shape = like.program, like.shape
    ones = _ones_of.get(program)
    if ones is None:
        made = building.of_constant(1.0, program.dtype, shape, program.device)
        ones = _ones_of[program] = made.program
    return _tensor(Expr(ones, (), None, shape))


_ones_of: dict[Program, Program] = derived("ones, the first cotangents")


def _shape(output: Any, like: Any) -> Any:
    return output.shape if isinstance(output, Tensor) else list(like.shape)


def _typed(i: int, cotangent: Tensor, like: Any) -> Tensor:
    """A cotangent in the type of the output."""
    if cotangent.dtype is like.dtype:
        return cotangent
    if cotangent.dtype.is_complex != like.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[{i}] has a dtype of {cotangent.dtype} and output[{i}] "
            f"has a dtype of {like.dtype}."
        )
    return cotangent.to(like.dtype)


def described(edge: GradientEdge) -> Any:
    """What has the shape, type and device of the tensor an edge stands for."""
    known = edge.node._input_metadata
    metadata = known[edge.output_nr] if edge.output_nr < len(known) else None
    if metadata is None:
        raise RuntimeError(
            f"{edge.node.name()} does not know what its output {edge.output_nr} looks like; pass "
            "the tensor instead of a GradientEdge"
        )
    return metadata._expr if isinstance(metadata, Tensor) else metadata


def _check_implicit(like: Any) -> None:
    """Refuse what has no obvious cotangent."""
    if like.shape and any(n != 1 for n in like.shape):
        raise RuntimeError(
            f"grad can be implicitly created only for scalar outputs; this one has shape "
            f"{list(like.shape)}: pass backward(gradient) or take .sum() first"
        )
    d = like.program.dtype
    if d.category != 2:
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {d}: pass "
            "backward(gradient)"
        )
