"""The two ways to ask for gradients."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from lucid_gpu.fusion.region import RegionNode, observe, unobserve
from lucid_gpu.ops.record import constant
from lucid_gpu.tape import engine
from lucid_gpu.tape.node import AccumulateGrad
from lucid_gpu.tensor import Tensor


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: Any = None,
) -> None:
    """Add to the ``.grad`` of leaves the gradient of ``tensors``.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
    grad_tensors : Tensor or sequence of Tensor or None
        Cotangents; may be left out for tensors of one element.
    retain_graph : bool, optional
        Keep what was saved for another pass; by default the value of ``create_graph``.
    create_graph : bool
        Record the pass itself, for higher derivatives.
    inputs : Tensor or sequence of Tensor, optional
        Accumulate into these only.

    Raises
    ------
    RuntimeError
        Where nothing requires grad, a cotangent does not fit, or the graph was freed.
    """
    outputs = _sequence(tensors)
    roots = _roots(outputs, _grads(outputs, grad_tensors))
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        engine.backward(roots, keep, create_graph)
        return
    targets = _sequence(inputs)
    if not targets:
        raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    for tensor, gradient in zip(
        targets, _captured(roots, targets, keep, create_graph), strict=True
    ):
        node = tensor._edge()[0]
        if gradient is None:
            continue
        if isinstance(node, AccumulateGrad):
            node.accumulate(gradient, create_graph)
        else:
            tensor._grad = gradient.alias()


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, leaving every ``.grad`` alone.

    Returns
    -------
    tuple of Tensor or None
        One an input, of its shape; None for unused inputs where ``allow_unused``.
    """
    results, targets = _sequence(outputs), _sequence(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if not targets:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(
            results, targets, grad_outputs, keep, create_graph, allow_unused, materialize_grads
        )
    roots = _roots(results, _grads(results, grad_outputs))
    found = _captured(roots, targets, keep, create_graph)
    for i, (gradient, tensor) in enumerate(zip(found, targets, strict=True)):
        if gradient is not None:
            continue
        if materialize_grads:
            found[i] = constant(0.0, tensor)
        elif not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set "
                f"allow_unused=True if this is the desired behavior. It is inputs[{i}], of shape "
                f"{list(tensor.shape)}."
            )
    return tuple(found)


def _batched(
    results: Sequence[Tensor],
    targets: Sequence[Tensor],
    grad_outputs: Any,
    keep: bool,
    create_graph: bool,
    allow_unused: bool | None,
    materialize: bool,
) -> tuple[Any, ...]:
    """One pass for each slice of the cotangents' first dimension."""
    from lucid_gpu.ops.shape import stack

    cotangents = _sequence(grad_outputs)
    rows = []
    count = cotangents[0].shape[0]
    for i in range(count):
        part = [None if c is None else c[i] for c in cotangents]
        retain = keep or i + 1 < count
        rows.append(
            grad(
                results,
                targets,
                part,
                retain,
                create_graph,
                allow_unused,
                materialize_grads=materialize,
            )
        )
    return tuple(
        [None if column[0] is None else stack(column) for column in zip(*rows, strict=True)]
    )


def _captured(
    roots: list[Any], targets: Sequence[Tensor], keep: bool, create_graph: bool
) -> list[Any]:
    edges = []
    for i, tensor in enumerate(targets):
        if not tensor.requires_grad:
            raise RuntimeError(
                f"One of the differentiated Tensors does not require grad: inputs[{i}], of shape "
                f"{list(tensor.shape)}"
            )
        edges.append(tensor._edge())
    for node, _ in edges:
        observe(node)
    try:
        found = engine.backward(roots, keep, create_graph, edges, accumulate=False)
    finally:
        for node, _ in edges:
            unobserve(node)
    return [found.get(edge) for edge in edges]


def _sequence(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _grads(outputs: Sequence[Tensor], given: Any) -> list[Tensor]:
    if given is None:
        cotangents: Sequence[Any] = (None,) * len(outputs)
    elif isinstance(given, (Tensor, int, float, complex)):
        cotangents = (given,)
    else:
        cotangents = tuple(given)
    if len(cotangents) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(cotangents)} gradients")
    return [_cotangent(o, c) for o, c in zip(outputs, cotangents, strict=True)]


def _cotangent(output: Tensor, given: Any) -> Tensor:
    if given is None:
        if not output.requires_grad:
            return constant(1.0, output)
        if output.numel() != 1:
            raise RuntimeError(
                f"grad can be implicitly created only for scalar outputs; this one has shape "
                f"{list(output.shape)}: pass backward(gradient) or take .sum() first"
            )
        if output.dtype.is_complex:
            raise RuntimeError(
                "grad can be implicitly created only for real scalar outputs but got "
                f"{output.dtype}"
            )
        return constant(1.0, output)
    if not isinstance(given, Tensor):
        raise TypeError("gradients can be either Tensors, or None; got " + type(given).__name__)
    if given.shape != output.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[0] has a shape of {given.shape} and output[0] has a "
            f"shape of {output.shape}."
        )
    if given.dtype.is_complex != output.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[0] has a dtype of {given.dtype} and output[0] has a "
            f"dtype of {output.dtype}."
        )
    return given


def _roots(outputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Any]:
    roots = []
    for i, (output, cotangent) in enumerate(zip(outputs, cotangents, strict=True)):
        node, number = output._edge()
        if node is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        if isinstance(node, RegionNode) and not output._expr.program.is_load:
            node.root = weakref.ref(output)
        roots.append((node, number, cotangent))
    return roots
