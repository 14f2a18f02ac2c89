"""Transformations that differentiate in reverse: `grad`, `vjp`, `jacrev`, `hessian`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu.autograd.grad import grad as gradients_of
from lucid_gpu.func.graphs import Ends, fresh, parts_of, transforming
from lucid_gpu.func.trees import Structure, flatten, leaves_of, tree_map, unflatten
from lucid_gpu.func.vmap import everywhere_batched, vmap
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.ops.shape import stack
from lucid_gpu.ops.splitting import split
from lucid_gpu.ops.wrapping import cut
from lucid_gpu.tape.modes import inference_mode, is_grad_enabled, state
from lucid_gpu.tensor import Tensor

__all__ = [
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacrev",
    "value_and_grad",
    "vjp",
]

Argnums = int | tuple[int, ...]
_VALUE = "grad_and_value(f)(*args)"
_VJP = "vjp(f, *primals)"


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that computes the gradient of ``func``.

    Parameters
    ----------
    func : callable
        Returns a 0-d tensor, or ``(tensor, aux)`` with ``has_aux``.
    argnums : int or tuple of int
        Which positional arguments to differentiate by; each is a tensor or a tree of them.
    has_aux : bool
        Whether ``func`` returns a second value, which is passed on.

    Returns
    -------
    callable
        Takes ``func``'s arguments; returns a gradient of the argument's structure, a tuple of them
        for a tuple of ``argnums``, and with ``has_aux`` ``(gradient, aux)``.

    Raises
    ------
    RuntimeError
        When called, for a ``func`` that does not return a tensor of one element, and an ``argnums``
        without an argument.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.func import grad
    >>> grad(grad(lambda x: x ** 3))(lucid_gpu.tensor(2.0))
    tensor(12.)
    """

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        slope, _, aux = _differentiated(func, argnums, has_aux, args, kwargs)
        return (slope, aux) if has_aux else slope

    return gradient


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """See `grad`; the result is ``(gradient, value)``, or ``(gradient, (value, aux))``."""

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        slope, value, aux = _differentiated(func, argnums, has_aux, args, kwargs)
        return slope, (value, aux) if has_aux else value

    return both


def value_and_grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """See `grad`; the result is ``(value, gradient)``, or ``((value, aux), gradient)``."""

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        slope, value, aux = _differentiated(func, argnums, has_aux, args, kwargs)
        return (value, aux) if has_aux else value, slope

    return both


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """What ``func`` returns, and the function that multiplies vectors with its Jacobian.

    Parameters
    ----------
    func : callable
        Of tensors or trees of tensors, returning a tensor or a tree of them.
    primals : tensors or trees
        The arguments.
    has_aux : bool
        Whether ``func`` returns ``(output, aux)``.

    Returns
    -------
    output, vjp_fn[, aux]
        ``vjp_fn`` takes cotangents of the output's structure and returns a tuple, one a primal; it
        may be called again.

    Raises
    ------
    RuntimeError
        If ``func`` returns anything but tensors.
    """
    output, pull, aux = _pullback(func, primals, tuple(range(len(primals))), has_aux, {})
    return (output, pull, aux) if has_aux else (output, pull)


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """The function that computes the Jacobian of ``func``, one row for each element of its output.

    Parameters
    ----------
    func, argnums, has_aux
        See `grad`; ``func`` returns a tensor or a tree of them.
    chunk_size : int, optional
        How many rows to compute at once; all of them by default. Smaller takes less memory, and
        one row is computed without `vmap`.
    _preallocate_and_copy : bool
        Accepted for compatibility; changes nothing.

    Returns
    -------
    callable
        Its result has the structure of ``func``'s output, with that of the argument (a tuple for a
        tuple of ``argnums``) in place of each tensor: ``(*output.shape, *argument.shape)``.

    Raises
    ------
    ValueError
        For a ``chunk_size`` that is not above 0.
    RuntimeError
        If ``func`` returns anything but tensors.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        refuse_complex("jacrev", args, "input")
        output, pull, aux = _pullback(func, args, argnums, has_aux, kwargs)
        refuse_complex("jacrev", output, "output")
        outputs, structure = flatten(output)
        sizes = [o.numel() for o in outputs]
        point = chosen(args, argnums)
        if sum(sizes):
            units = _units(outputs, sizes)

            def row(*cotangents: Tensor) -> Any:
                return pull(unflatten(cotangents, structure))

            if chunk_size == 1:  # what vmap does not know may stand in backward
                each = [flatten(row(*one)) for one in zip(*units, strict=True)]
                columns = zip(*[leaves for leaves, _ in each], strict=True)
                rows = unflatten([stack(column) for column in columns], each[0][1])
            else:
                rows = vmap(row, chunk_size=chunk_size)(*units)
            rows = (rows,) if isinstance(argnums, int) else rows
        else:
            rows = tree_map(lambda x: x.new_zeros((0, *x.shape)), point)
        blocks = _blocks(rows, outputs, sizes, point)
        if isinstance(argnums, int):
            blocks = [block[0] for block in blocks]
        result = unflatten(blocks, structure)
        return (result, aux) if has_aux else result

    return jacobian


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The function that computes the second derivatives of ``func``: ``jacrev(jacrev(func))``."""
    return jacrev(jacrev(func, argnums), argnums)


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function with the same results, and the same writes to its arguments.

    PyTorch rewrites in-place ops and views for tracers that take pure functions only. Here every
    transform takes the function as it is.

    Parameters
    ----------
    func : callable
    remove : {"mutations", "mutations_and_views"}

    Raises
    ------
    RuntimeError
        For another ``remove``.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. "
            'Valid options are: "mutations", "mutations_and_views"'
        )

    @functools.wraps(func)
    def pure(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return pure


def refuse_complex(name: str, tree: Any, role: str) -> None:
    """Jacobians are of real tensors: how complex ones are to be counted is not settled."""
    for i, leaf in enumerate(leaves_of(tree)):
        if isinstance(leaf, Tensor) and leaf.dtype.is_complex:
            raise RuntimeError(
                f"{name}: Expected all {role}s to be real but received complex tensor at flattened "
                f"{role} idx: {i}; write it with the real and imag parts, or take vjp or jvp"
            )


# --- arguments ------------------------------------------------------------------------------------


def _numbers(argnums: Any, count: int) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(numbers, tuple) or not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if not numbers:
        raise RuntimeError("argnums must be non-empty")
    for n in numbers:
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    if len({n % count for n in numbers}) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple([n % count for n in numbers])


def chosen(args: tuple[Any, ...], argnums: Argnums) -> tuple[Any, ...]:
    """The arguments of these numbers; RuntimeError where one is out of range, or twice there."""
    return tuple([args[n] for n in _numbers(argnums, len(args))])


def _apart(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(value)}")
    return fresh(everywhere_batched(value))


def _set_apart(args: tuple[Any, ...], argnums: Argnums) -> tuple[tuple[Any, ...], Any]:
    """The arguments, those to differentiate by replaced by fresh ones; and those."""
    arguments = list(args)
    point = []
    for n in _numbers(argnums, len(args)) if argnums != () else ():
        arguments[n] = tree_map(_apart, args[n])
        point.append(arguments[n])
    return tuple(arguments), tuple(point)


def _without_aux(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    check_aux(result[1])
    return result


def check_outputs(name: str, call: str, outputs: list[Any]) -> None:
    """Refuse what has no derivative: no output at all, and anything but a tensor."""
    if not outputs or (len(outputs) == 1 and outputs[0] is None):
        raise RuntimeError(
            f"{name}: Expected f to be a function that has non-empty output (got output = "
            f"{outputs})"
        )
    for o in outputs:
        if not isinstance(o, Tensor):
            raise RuntimeError(
                f"{name}: expected {call} to return only tensors, got unsupported type {type(o)}"
            )


def check_aux(aux: Any) -> None:
    """Refuse what is no tree of tensors."""
    for leaf in flatten(aux)[0]:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")


# --- differentiating ------------------------------------------------------------------------------


def _differentiated(
    func: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any, Any]:
    """Gradient, value and aux."""
    _numbers(argnums, len(args))
    recording = is_grad_enabled()
    with inference_mode(False):
        arguments, point = _set_apart(args, argnums)
        with transforming():
            result = func(*arguments, **kwargs)
        value, aux = _without_aux(result, has_aux, _VALUE)
        _check_value(value)
        targets, structure = flatten(point)
        ends = Ends(targets)
        keep = recording and ends.lead_elsewhere((value,))
        slope = _gradients([value], targets, None, keep)
    results = [_loose(t, ends, recording) for t in slope]
    value, aux = tree_map(lambda t: _loose(t, ends, recording), (value, aux))
    ends.leave_written()
    ends.close()
    gradient = unflatten(results, structure)
    return gradient[0] if isinstance(argnums, int) else gradient, value, aux


def _check_value(value: Any) -> None:
    if not isinstance(value, Tensor):
        raise RuntimeError(f"{_VALUE}: Expected f(*args) to return a Tensor, got {type(value)}")
    if value.ndim:
        raise RuntimeError(
            f"{_VALUE}: Expected f(*args) to return a scalar Tensor, got tensor with {value.ndim} "
            "dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )


def _gradients(
    outputs: list[Any], targets: list[Any], cotangents: Any, create_graph: bool
) -> list[Tensor]:
    """Gradients, zeros where there are none; the graph is kept."""
    vectors = [None] * len(outputs) if cotangents is None else cotangents
    pairs = [(o, c) for o, c in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs or not targets:
        return [zeros_like(t) for t in targets]
    roots, weights = zip(*pairs, strict=True)
    keep = create_graph or cotangents is not None
    grads = gradients_of(roots, targets, weights, keep, create_graph, allow_unused=True)
    return [zeros_like(t) if g is None else g for g, t in zip(grads, targets, strict=True)]


def _loose(value: Any, ends: Ends, recording: bool) -> Any:
    """A result without a graph, unless that leads to something besides the transform's inputs."""
    if not isinstance(value, Tensor) or not any(p.requires_grad for p in parts_of(value)):
        return value
    if recording and ends.lead_elsewhere((value,)):
        return value
    return cut(value)


def _pullback(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Argnums,
    has_aux: bool,
    kwargs: dict[str, Any],
) -> tuple[Any, Callable[..., Any], Any]:
    """Output, the function from cotangents to gradients, aux."""
    recording = is_grad_enabled()
    with inference_mode(False):
        arguments, point = _set_apart(args, argnums)
        with transforming():
            result = func(*arguments, **kwargs)
        output, aux = _without_aux(result, has_aux, _VJP)
    outputs, structure = flatten(output)
    check_outputs(_VJP, "f(*primals)", outputs)
    targets, of_point = flatten(point)
    ends = Ends(targets)
    if state.took_history:  # a result may be what was written, and is left without history
        outputs = [o.alias() for o in outputs]

    def pull(cotangents: Any) -> Any:
        vectors = _cotangents(cotangents, structure)
        keep = is_grad_enabled() and ends.lead_elsewhere((*outputs, *vectors))
        with inference_mode(False):
            grads = _gradients(outputs, targets, vectors, keep)
        results = [_loose(g, ends, keep) for g in grads]
        slopes = unflatten(results, of_point)
        return slopes[0] if isinstance(argnums, int) else slopes

    output, aux = tree_map(lambda t: _loose(t, ends, recording), (output, aux))
    ends.leave_written()
    return output, pull, aux


def _cotangents(cotangents: Any, structure: Structure) -> list[Tensor]:
    vectors, own = flatten(cotangents)
    if own != structure:
        raise RuntimeError(
            "Expected pytree structure of cotangents to be the same as pytree structure of outputs "
            f"to the function. cotangents: {own}, primal output: {structure}"
        )
    return vectors


# --- Jacobians ------------------------------------------------------------------------------------


def _units(outputs: list[Tensor], sizes: list[int]) -> list[Tensor]:
    """For each output, a batch of the unit vectors of all of them together."""
    total, start, made = sum(sizes), 0, []
    for output, n in zip(outputs, sizes, strict=True):
        unit = output.new_zeros((total, n))
        unit[range(start, start + n), range(n)] = 1
        made.append(unit.reshape((total, *output.shape)))
        start += n
    return made


def _blocks(rows: Any, outputs: list[Tensor], sizes: list[int], point: Any) -> list[Any]:
    """For each output, the rows of its Jacobian in the shape of output and argument."""
    leaves, structure = flatten(rows)
    shapes = [tuple(x.shape) for x in leaves_of(point)]
    parts = [split(leaf, sizes) for leaf in leaves]
    return [
        unflatten(
            [
                part[i].reshape((*output.shape, *shape))
                for part, shape in zip(parts, shapes, strict=True)
            ],
            structure,
        )
        for i, output in enumerate(outputs)
    ]
