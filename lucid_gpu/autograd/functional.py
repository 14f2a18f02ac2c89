"""Jacobians, Hessians and their products with vectors, of functions of tensors.

Each takes a function and the point, a tensor or a tuple of tensors. Results carry a graph only with
``create_graph=True``; the inputs themselves are never marked or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.autograd.grad import grad
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.ops.shape import stack
from lucid_gpu.ops.splitting import split
from lucid_gpu.ops.wrapping import cut
from lucid_gpu.tape.modes import enable_grad, is_grad_enabled, set_grad_enabled
from lucid_gpu.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = tuple[Any, ...]
_OUTPUTS = "outputs of the user-provided function"
_NOT_STRICT = " This is not allowed in strict mode."
_NOT_STRICT_GRAPH = " This is not allowed in strict mode when create_graph=True."


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of a vector with the Jacobian: ``v^T J``.

    Parameters
    ----------
    func : callable
        Takes the inputs, returns a tensor or a tuple of tensors.
    inputs : Tensor or tuple of Tensor
    v : Tensor or tuple of Tensor, optional
        Of the outputs' shapes; may be left out for one output of one element.
    create_graph : bool
        Let the results be differentiated.
    strict : bool
        Raise where an output does not depend on an input, instead of giving zeros.

    Returns
    -------
    outputs, product
        What ``func`` returned, and a tensor for each input.

    Raises
    ------
    RuntimeError
        For a ``v`` of another shape than the outputs; under ``strict``, where an output does not
        depend on an input.
    TypeError
        For inputs and outputs that are not tensors.
    """
    with enable_grad():
        point, many_inputs = _isolated(inputs, "inputs", "vjp", create_graph)
        results, many = _outputs_of(func, point, "vjp", strict)
        vector = _vector(v, results, many, "vjp", create_graph)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grads(results, point, vector, create_graph)
        product = _with_zeros(grads, point, strict, create_graph, "The output of", "jacobian")
    return _returned(results, many, create_graph), _returned(product, many_inputs, create_graph)


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of the Jacobian with a vector, ``J v``, by differentiating a `vjp` by its vector.

    Parameters
    ----------
    func, inputs, create_graph, strict
        See `vjp`.
    v : Tensor or tuple of Tensor, optional
        Of the inputs' shapes; may be left out for one input of one element.

    Returns
    -------
    outputs, product
        What ``func`` returned, and a tensor for each of its outputs.

    Raises
    ------
    RuntimeError
        For a ``v`` of another shape than the inputs; under ``strict``, where an output does not
        depend on an input.
    TypeError
        For inputs and outputs that are not tensors.
    """
    with enable_grad():
        point, many_inputs = _isolated(inputs, "inputs", "jvp", create_graph)
        vector = _vector(v, point, many_inputs, "jvp", create_graph)
        results, many = _outputs_of(func, point, "jvp", strict)
        cotangents = tuple([zeros_like(o, requires_grad=True) for o in results])
        linear = _grads(results, point, cotangents, True)
        _check_depends(linear, "grad_inputs", strict)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grads(linear, cotangents, vector, create_graph)
        product = _with_zeros(grads, results, strict, create_graph, _TRICK, "jacobian")
    return _returned(results, many, create_graph), _returned(product, many, create_graph)


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """All derivatives of the outputs by the inputs.

    Parameters
    ----------
    func, inputs, create_graph, strict
        See `vjp`.
    vectorize : bool
        Run the backward pass once, on a batch of cotangents, instead of once an output element.
    strategy : {"reverse-mode", "forward-mode"}
        Rows by backward passes, or columns by forward-mode (which wants ``vectorize=True``).

    Returns
    -------
    Tensor, or tuple of them, or tuple of tuples
        Of shape ``(*output.shape, *input.shape)``; a tuple over outputs where ``func`` returns one,
        of tuples over inputs where there is a tuple of them.

    Raises
    ------
    RuntimeError
        For ``strict`` together with ``vectorize``, and where it finds an output that does not
        depend on an input.
    NotImplementedError
        For the strategy "forward-mode" with ``create_graph``, or without ``vectorize``.
    TypeError
        For inputs and outputs that are not tensors.
    """
    assert strategy in ("reverse-mode", "forward-mode"), (
        'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function '
        'has more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, '
        f'prefer to use "reverse-mode". Got {strategy!r}.'
    )
    if strategy == "forward-mode":
        _check_forward(create_graph, strict, vectorize)
        return _columns(func, inputs)
    with enable_grad():
        point, many_inputs = _isolated(inputs, "inputs", "jacobian", create_graph)
        results, many = _outputs_of(func, point, "jacobian", strict)
        if strict and vectorize:
            _refuse_together("`strict=True` and `vectorized=True`", "vectorize=False")
        if vectorize:
            rows = _rows_at_once(results, point, create_graph)
        else:
            rows = [_rows(results, i, point, create_graph, strict) for i in range(len(results))]
    kept = tuple([_returned(row, many_inputs, create_graph) for row in rows])
    return kept if many else kept[0]


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """All second derivatives of a function with a single output of one element.

    Parameters
    ----------
    func, inputs, create_graph, strict, vectorize
        See `jacobian`.
    outer_jacobian_strategy : {"reverse-mode", "forward-mode"}
        How the Jacobian of the gradient is computed.

    Returns
    -------
    Tensor or tuple of tuples of Tensor
        ``hessian[i][j]`` has the shape ``(*inputs[i].shape, *inputs[j].shape)``.

    Raises
    ------
    RuntimeError
        Under ``strict``, where the output or its gradient does not depend on an input.
    TypeError
        For inputs and outputs that are not tensors.
    """
    assert outer_jacobian_strategy in ("reverse-mode", "forward-mode"), (
        'Expected strategy to be either "forward-mode" or "reverse-mode". Got '
        f"{outer_jacobian_strategy!r}."
    )
    many, point = _as_tuple(inputs, "inputs", "hessian")

    def gradient(*point: Any) -> Tensors:
        if outer_jacobian_strategy == "forward-mode":
            point = tuple([_fresh_leaf(x) for x in point])
        rows = jacobian(_scalar_only(func, strict), point, create_graph=True)
        _check_depends(rows, "jacobian", strict)
        kept: Tensors = rows
        return kept

    blocks = jacobian(gradient, point, create_graph, strict, vectorize, outer_jacobian_strategy)
    return blocks if many else blocks[0][0]


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of a vector with the Hessian: ``v^T H``; the function's value, and the product.

    Parameters
    ----------
    func, inputs, create_graph, strict
        See `vjp`; ``func`` returns a single tensor of one element.
    v : Tensor or tuple of Tensor, optional
        Of the inputs' shapes; may be left out for one input of one element.

    Raises
    ------
    RuntimeError
        For a ``v`` of another shape than the inputs; under ``strict``, where the output does not
        depend on an input.
    TypeError
        For inputs and outputs that are not tensors.
    """
    with enable_grad():
        point, many, vector, result, slope = _slope(func, inputs, v, "vhp", create_graph, strict)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grads(slope, point, vector, create_graph)
        product = _with_zeros(grads, point, strict, create_graph, _DOUBLE, "hessian")
    return _returned(result, False, create_graph), _returned(product, many, create_graph)


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The product of the Hessian with a vector, ``H v``; arguments and results as in `vhp`.

    The Hessian is symmetric, so `vhp` gives the same numbers with one backward pass less.

    RuntimeError for a ``v`` of another shape than the inputs; under ``strict``, where the output
    does not depend on an input; TypeError for inputs and outputs that are not tensors.
    """
    with enable_grad():
        point, many, vector, result, slope = _slope(func, inputs, v, "hvp", create_graph, strict)
        cotangents = tuple([zeros_like(x, requires_grad=True) for x in point])
        linear = _grads(slope, point, cotangents, True)
        _check_depends(linear, "hessian", strict)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grads(linear, cotangents, vector, create_graph)
        product = _with_zeros(grads, point, strict, create_graph, _DOUBLE_TRICK, "hessian")
    return _returned(result, False, create_graph), _returned(product, many, create_graph)


# --- what goes in ---------------------------------------------------------------------------------


# The names of PyTorch's file that packages import: _as_tuple, _tuple_postprocess,
# _grad_postprocess and _construct_standard_basis_for.


def _as_tuple(value: Any, what: str, function: str) -> tuple[bool, Tensors]:
    """Whether a value is a tuple, and it as one."""
    many = isinstance(value, tuple)
    tensors = value if many else (value,)
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            which = f"the value at index {i}" if many else f"the given {what}"
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but "
                f"{which} has type {type(tensor)}."
            )
    return many, tensors


def _isolated(
    tensors: Any, what: str, function: str, create_graph: bool, needs: bool = True
) -> tuple[Tensors, bool]:
    """The inputs apart from the user's own tensors, so that those are never changed."""
    many, originals = _as_tuple(tensors, what, function)
    if create_graph:  # results must lead back to the user's own
        return tuple([_aside(t, needs) for t in originals]), many
    return tuple([t.detach().requires_grad_(needs) for t in originals]), many


def _aside(tensor: Tensor, needs: bool) -> Tensor:
    return tensor.view_as(tensor) if tensor.requires_grad or not needs else _fresh_leaf(tensor)


def _fresh_leaf(tensor: Tensor) -> Tensor:
    return tensor if tensor.requires_grad else cut(tensor).requires_grad_()


def _vector(v: Any, like: Tensors, many: bool, function: str, create_graph: bool) -> Any:
    """The vector a Jacobian is multiplied with, checked against what it pairs with."""
    if v is None:
        if len(like) == 1 and like[0].numel() == 1:
            return None
        known = "user-provided function returns" if function == "vjp" else "input to the"
        rest = "" if function == "vjp" else " user-provided function is"
        raise RuntimeError(
            f"The vector v can only be None if the {known}{rest} a single Tensor with a single "
            "element."
        )
    vector, _ = _isolated(v, "v", function, create_graph, needs=False)
    if len(vector) != len(like):
        if many:
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(vector)}."
            )
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (mine, other) in enumerate(zip(vector, like, strict=True)):
        if mine.shape != other.shape:
            entry = f"Entry {i} in " if many else ""
            raise RuntimeError(
                f"{entry}v has invalid size: should be torch.Size({list(other.shape)}) but got "
                f"torch.Size({list(mine.shape)})."
            )
    return vector


def _outputs_of(
    func: Callable[..., Any], point: Tensors, function: str, strict: bool
) -> tuple[Tensors, bool]:
    many, results = _as_tuple(func(*point), _OUTPUTS, function)
    _check_depends(results, "outputs", strict)
    return results, many


def _scalar_only(func: Callable[..., Any], strict: bool) -> Callable[..., Any]:
    """The function, refused where it returns anything but one tensor of one element."""

    def checked(*point: Any) -> Any:
        results, many = _outputs_of(func, point, "hessian", strict)
        return _single(results, many, "hessian").squeeze()

    return checked


def _single(results: Tensors, many: bool, function: str) -> Tensor:
    if many:
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    value: Tensor = results[0]
    if value.numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {function} should contain a single "
            f"element; it has shape {list(value.shape)}"
        )
    return value


def _slope(
    func: Callable[..., Any], inputs: Any, v: Any, function: str, create_graph: bool, strict: bool
) -> tuple[Tensors, bool, Any, Tensors, Tensors]:
    """The point, the vector, the function's value there and its gradient, as part of a graph."""
    point, many = _isolated(inputs, "inputs", function, create_graph)
    vector = _vector(v, point, many, function, create_graph)
    results, several = _outputs_of(func, point, function, strict)
    value = _single(results, several, function)
    slope = _grads((value,), point, None, True)
    _check_depends(slope, "jacobian", strict)
    return point, many, vector, results, slope


# --- gradients ------------------------------------------------------------------------------------


def _grads(
    outputs: Sequence[Any],
    inputs: Tensors,
    cotangents: Any,
    create_graph: bool,
    retain_graph: bool | None = None,
    batched: bool = False,
) -> Tensors:
    """Gradients of those outputs that have any; None for inputs they do not depend on."""
    vectors = (None,) * len(outputs) if cotangents is None else cotangents
    kept = [(o, c) for o, c in zip(outputs, vectors, strict=True) if o is not None]
    kept = [(o, c) for o, c in kept if o.requires_grad]
    if not kept:
        return (None,) * len(inputs)
    roots, weights = zip(*kept, strict=True)
    grads: Tensors = grad(
        roots,
        inputs,
        weights,
        retain_graph,
        create_graph,
        allow_unused=True,
        is_grads_batched=batched,
    )
    return grads


def _rows(
    results: Tensors, i: int, point: Tensors, create_graph: bool, strict: bool
) -> list[Tensor]:
    """The Jacobian of one output, a backward pass an element."""
    flat = results[i].reshape(-1)
    rows: list[list[Tensor]] = [[] for _ in point]
    for k in range(flat.numel()):
        for j, gradient in enumerate(_grads((flat[k],), point, None, create_graph, True)):
            if strict:
                _check_entry(gradient, i, j, create_graph)
            rows[j].append(zeros_like(point[j]) if gradient is None else gradient)
    shape = tuple(results[i].shape)
    return [
        (stack(row) if row else x.new_zeros(0)).reshape((*shape, *x.shape))
        for row, x in zip(rows, point, strict=True)
    ]


def _check_entry(gradient: Any, output: int, input: int, create_graph: bool) -> None:
    if gradient is None:
        raise RuntimeError(
            f"Output {output} of the user-provided function is independent of input {input}."
            + _NOT_STRICT
        )
    if create_graph and not gradient.requires_grad:
        raise RuntimeError(
            f"The jacobian of the user-provided function is independent of input {output}."
            + _NOT_STRICT_GRAPH
        )


def _rows_at_once(results: Tensors, point: Tensors, create_graph: bool) -> list[list[Tensor]]:
    """The Jacobians of all outputs by one backward pass on a batch of cotangents."""
    sizes = [o.numel() for o in results]
    grads: Tensors = (None,) * len(point)
    if sum(sizes):
        units = _units(results)
        grads = _grads(results, point, units, create_graph, None, batched=True)
    whole = [
        x.new_zeros(()).expand(sum(sizes), *x.shape) if g is None else g
        for g, x in zip(grads, point, strict=True)
    ]
    parts = [split(g, sizes) for g in whole]
    return [
        [part[i].reshape((*result.shape, *x.shape)) for part, x in zip(parts, point, strict=True)]
        for i, result in enumerate(results)
    ]


def _units(tensors: Tensors) -> Tensors:
    """For each tensor, a batch of the unit vectors of all of them together, in its shape."""
    rows = _construct_standard_basis_for(tensors, tuple([t.numel() for t in tensors]))
    return tuple([r.reshape((len(r), *t.shape)) for r, t in zip(rows, tensors, strict=True)])


def _construct_standard_basis_for(tensors: Tensors, tensor_numels: tuple[int, ...]) -> Tensors:
    """The columns of the identity that belong to each of several tensors."""
    total = sum(tensor_numels)
    made, start = [], 0
    for t, n in zip(tensors, tensor_numels, strict=True):
        unit = t.new_zeros((total, n))
        unit[range(start, start + n), range(n)] = 1
        made.append(unit)
        start += n
    return tuple(made)


def _check_forward(create_graph: bool, strict: bool, vectorize: bool) -> None:
    forward = '`strategy="forward-mode"`'
    if create_graph:
        raise NotImplementedError(
            f"autograd.functional.jacobian: `create_graph=True` and {forward} are not supported "
            'together (yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.'
        )
    if strict:
        _refuse_together(f"`strict=True` and {forward}", 'strategy="reverse-mode"')
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
            "implemented for `vectorize=True`."
        )


def _refuse_together(what: str, instead: str) -> None:
    raise RuntimeError(
        f"autograd.functional.jacobian: {what} are not supported together (yet). Please either set "
        f"`strict=False` or `{instead}`."
    )


def _columns(func: Callable[..., Any], inputs: Any) -> Any:
    """The Jacobian by forward mode, an input element at a time."""
    from lucid_gpu.autograd import forward_ad

    many_inputs, point = _as_tuple(inputs, "inputs", "jacobian")
    units = _units(point)
    columns: list[Tensors] = []
    many = False
    for k in range(sum(x.numel() for x in point)):
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(x.detach(), u[k]) for x, u in zip(point, units, strict=True)
            ]
            many, results = _as_tuple(func(*duals), _OUTPUTS, "jacobian")
            columns.append(tuple([_tangent_of(forward_ad.unpack_dual(o)) for o in results]))
    outputs = len(results) if columns else 0
    rows = [_joined(point, [c[i] for c in columns]) for i in range(outputs)]
    kept = tuple([_returned(row, many_inputs, False) for row in rows])
    return kept if many else kept[0]


def _tangent_of(dual: Any) -> Tensor:
    primal, tangent = dual
    detached: Tensor = zeros_like(primal) if tangent is None else tangent.detach()
    return detached


def _joined(point: Tensors, columns: list[Tensor]) -> list[Tensor]:
    """The columns of one output as one Jacobian for each input."""
    shape = tuple(columns[0].shape)
    whole = stack(columns, dim=-1)
    parts = split(whole, [x.numel() for x in point], -1)
    return [part.reshape((*shape, *x.shape)) for part, x in zip(parts, point, strict=True)]


# --- what comes out -------------------------------------------------------------------------------

_TRICK = "The gradient with respect to the input"
_DOUBLE = "The jacobian of"
_DOUBLE_TRICK = "The hessian of"
_INDEPENDENT = {
    "The output of": "the user-provided function is independent of input {}." + _NOT_STRICT,
    _TRICK: "is independent of entry {} in the grad_outputs when using the double backward trick "
    "to compute forward mode gradients." + _NOT_STRICT,
    _DOUBLE: "the user-provided function is independent of input {}." + _NOT_STRICT,
    _DOUBLE_TRICK: "the user-provided function is independent of entry {} in the grad_jacobian. "
    "This is not allowed in strict mode as it prevents from using the double backward trick to "
    "replace forward mode AD.",
}


def _with_zeros(
    grads: Tensors, like: Tensors, strict: bool, create_graph: bool, stage: str, order: str
) -> Tensors:
    """Undefined gradients as zeros, or as an error that names them."""
    filled = []
    for i, (gradient, tensor) in enumerate(zip(grads, like, strict=True)):
        if strict and gradient is None:
            raise RuntimeError(f"{stage} {_INDEPENDENT[stage].format(i)}")
        if strict and create_graph and not gradient.requires_grad:
            raise RuntimeError(
                f"The {order} of the user-provided function is independent of input {i}."
                + _NOT_STRICT_GRAPH
            )
        filled.append(zeros_like(tensor) if gradient is None else gradient)
    return tuple(filled)


def _returned(tensors: Sequence[Any], many: bool, create_graph: bool) -> Any:
    return _tuple_postprocess(_grad_postprocess(tensors, create_graph), many)


def _grad_postprocess(inputs: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    """The tensors of a tree of tuples, without history unless it is asked for."""
    if create_graph:
        return tuple(inputs)
    return tuple(
        [t.detach() if isinstance(t, Tensor) else _grad_postprocess(t, False) for t in inputs]
    )


def _tuple_postprocess(res: Any, to_unpack: bool | tuple[bool, bool]) -> Any:
    """Results as the values were that `_as_tuple` made tuples: for one bool, or a tree for two."""
    many, nested = to_unpack if isinstance(to_unpack, tuple) else (to_unpack, True)
    if not nested:
        res = tuple([row[0] for row in res])
    return res if many else res[0]


_SENTENCES = {
    "hessian": "The hessian of the user-provided function with respect to input {} is independent "
    "of the input. This is not allowed in strict mode. You should ensure that your function is "
    "thrice differentiable and that the hessian depends on the inputs.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided "
    "function with respect to input {} is independent of the input. This is not allowed in strict "
    "mode. You should ensure that your function is twice differentiable and that the jacobian "
    "depends on the inputs (this would be violated by a linear function for example).",
    "grad_inputs": "The gradient with respect to input {} is independent of the inputs of the "
    "user-provided function. This is not allowed in strict mode.",
    "outputs": "Output {} of the user-provided function does not require gradients. The outputs "
    "must be computed in a differentiable manner from the input when running in strict mode.",
}


def _check_depends(tensors: Sequence[Any], what: str, strict: bool) -> None:
    if not strict:
        return
    for i, tensor in enumerate(tensors):
        if tensor is None:
            raise RuntimeError(
                f"The output of the user-provided function is independent of input {i}."
                + _NOT_STRICT
            )
        if not tensor.requires_grad:
            raise RuntimeError(_SENTENCES[what].format(i))
