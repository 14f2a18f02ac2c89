"""Transformations that differentiate forward: `jvp`, `jacfwd`, `linearize`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu.autograd.dual import DualLevel
from lucid_gpu.autograd.forward_ad import _set_fwd_grad_enabled
from lucid_gpu.autograd.grad import grad
from lucid_gpu.func.graphs import Ends, fresh, transforming
from lucid_gpu.func.transforms import (
    _numbers,
    _units,
    check_aux,
    check_outputs,
    refuse_complex,
    vjp,
)
from lucid_gpu.func.trees import flatten, tree_map, unflatten
from lucid_gpu.func.vmap import everywhere_batched, vmap
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.ops.shape import movedim
from lucid_gpu.ops.splitting import split
from lucid_gpu.tape.modes import inference_mode, is_grad_enabled, state
from lucid_gpu.tensor import Tensor

__all__ = ["jacfwd", "jvp", "linearize"]

_JVP = "jvp(f, primals, tangents)"


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """What ``func`` returns, and how that changes along tangents: the Jacobian times a vector.

    Parameters
    ----------
    func : callable
        Of tensors or trees of tensors, returning a tensor or a tree of them.
    primals : tuple
        Its arguments.
    tangents : tuple
        As ``primals``, in structure and shapes.
    strict : bool
        Raise where an output does not depend on the primals, instead of giving zeros.
    has_aux : bool
        Whether ``func`` returns ``(output, aux)``.

    Returns
    -------
    output, output_tangent[, aux]

    Raises
    ------
    RuntimeError
        For primals or tangents that are not tuples of tensors of the same structure and shapes; for
        outputs that are not tensors; under ``strict``, for an output that does not depend on the
        primals.
    ValueError
        For integers and bool.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.func import jvp
    >>> jvp(lambda x: x**3, (lucid_gpu.tensor(2.0),), (lucid_gpu.tensor(1.0),))
    (tensor(8.), tensor(12.))
    """
    points, directions, structure = _paired(primals, tangents)
    with DualLevel() as level:
        duals = [level.enter(p, t) for p, t in zip(points, directions, strict=True)]
        with transforming(), _set_fwd_grad_enabled(True):
            result = func(*unflatten(duals, structure))
        aux = None
        if has_aux:
            result, aux = _without_aux(result)
            check_aux(aux)
            aux = tree_map(lambda a: level.leave(a)[0], aux)
        outputs, of_result = flatten(result)
        check_outputs(_JVP, "f(*primals)", outputs)
        parts = [_left(level, o, strict) for o in outputs]
    output = unflatten([p for p, _ in parts], of_result)
    moved = unflatten([t for _, t in parts], of_result)
    return (output, moved, aux) if has_aux else (output, moved)


def _paired(primals: Any, tangents: Any) -> tuple[list[Tensor], list[Tensor], Any]:
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{_JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    points, structure = flatten(primals)
    directions, of_tangents = flatten(tangents)
    if structure != of_tangents:
        raise RuntimeError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For "
            "example, if primals is a tuple of 3 tensors, tangents also must be. Got primals "
            f"with structure {structure} and tangents with structure {of_tangents}"
        )
    for name, tensors in (("primals", points), ("tangents", directions)):
        if not tensors:
            raise RuntimeError(f"{_JVP}: Expected {name} to contain at least one Tensor.")
        for t in tensors:
            if not isinstance(t, Tensor):
                raise RuntimeError(
                    f"{_JVP}: Expected {name} to only contain Tensors, got {type(t)}"
                )
    for p, t in zip(points, directions, strict=True):
        if p.shape != t.shape:
            raise RuntimeError(
                f"{_JVP}: Expected each tangent to have the shape of its primal, got "
                f"{list(t.shape)} for {list(p.shape)}"
            )
        for one in (p, t):
            if one.dtype.category < 2:
                raise ValueError(
                    f"{_JVP}: Expected primals and tangents to be floating point or complex, but "
                    f"got: {one.dtype}"
                )
    return points, directions, structure


def _without_aux(result: Any) -> tuple[Any, Any]:
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{_JVP}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return result


def _left(level: DualLevel, output: Tensor, strict: bool) -> tuple[Tensor, Tensor]:
    primal, tangent = level.leave(output)
    if tangent is None:
        if strict:
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the "
                "inputs. This is not allowed with strict=True."
            )
        tangent = zeros_like(primal)
    return primal, tangent


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:
    """The function that computes the Jacobian of ``func``, a column an element of its argument.

    Faster than `jacrev` where ``func`` has more outputs than inputs.

    Parameters
    ----------
    func : callable
        Returns a tensor or a tree of them, or ``(output, aux)`` with ``has_aux``.
    argnums : int or tuple of int
        Which positional arguments to differentiate by; each is a tensor or a tree of them.
    has_aux : bool
        Whether ``func`` returns a second value, which is passed on.
    chunk_size : int, optional
        How many columns to compute at once; all of them by default. Smaller takes less memory.
    randomness : {"error", "different", "same"}
        What random numbers inside ``func`` do; see `vmap`.

    Returns
    -------
    callable
        Its result has the structure of ``func``'s output, with that of the argument (a tuple for a
        tuple of ``argnums``) in place of each tensor: ``(*output.shape, *argument.shape)``.

    Raises
    ------
    RuntimeError
        If ``func`` returns anything but tensors.
    """

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        refuse_complex("jacfwd", args, "input")
        numbers = _numbers(argnums, len(args))
        point = tuple([args[n] for n in numbers])
        inputs, structure = flatten(point)
        sizes = [x.numel() for x in inputs]

        def at(*chosen: Any) -> Any:
            arguments = list(args)
            for n, value in zip(numbers, chosen, strict=True):
                arguments[n] = value
            return func(*arguments, **kwargs)

        def column(*tangents: Tensor) -> Any:
            return jvp(at, point, unflatten(tangents, structure), has_aux=has_aux)[1:]

        batched = vmap(column, randomness=randomness, chunk_size=chunk_size)
        moved, *aux = batched(*_units(inputs, sizes))
        refuse_complex("jacfwd", moved, "output")
        columns, of_output = flatten(moved)
        blocks = [_blocks(c, inputs, sizes, structure) for c in columns]
        if isinstance(argnums, int):
            blocks = [block[0] for block in blocks]
        result = unflatten(blocks, of_output)
        return (result, tree_map(lambda a: a[0], aux[0])) if has_aux else result

    return jacobian


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """What ``func`` returns at a point, and its derivative there, a linear function of tangents.

    As `jvp` for many tangents at one point: ``func`` runs once.

    Parameters
    ----------
    func : callable
        Of tensors or trees of tensors, returning a tensor or a tree of them.
    primals : tensors or trees
        Its arguments.

    Returns
    -------
    output, jvp_fn
        ``jvp_fn(*tangents)`` is the tangent of the output.

    Raises
    ------
    RuntimeError
        For tangents, given to ``jvp_fn``, of another structure, shape or type than the primals.
    """
    with transforming():  # its leaves are no end of what the caller differentiates
        output, pull = vjp(func, *primals)
    outputs, of_output = flatten(output)
    points, of_primals = flatten(primals)
    before, state.linearizing = state.linearizing, True
    try:
        with inference_mode(False):
            probes = [fresh(everywhere_batched(zeros_like(o))) for o in outputs]
            pulled = flatten(pull(unflatten(probes, of_output)))[0]
    finally:
        state.linearizing = before
    ends = Ends(probes)

    def pushed(*tangents: Any) -> Any:
        directions, structure = flatten(tangents)
        if structure != of_primals:
            raise RuntimeError(
                "Expected the tangents to have the same structure as the primals given to "
                f"linearize. tangents: {structure}, primals: {of_primals}"
            )
        for p, t in zip(points, directions, strict=True):
            if p.shape != t.shape or p.dtype is not t.dtype:
                raise RuntimeError(
                    "Expected each tangent to be of the shape and type of its primal, got "
                    f"{list(t.shape)}, {t.dtype} for {list(p.shape)}, {p.dtype}"
                )
        pairs = [(g, t) for g, t in zip(pulled, directions, strict=True) if g.requires_grad]
        if not pairs:
            return unflatten([zeros_like(o) for o in outputs], of_output)
        rows, vectors = zip(*pairs, strict=True)
        keep = is_grad_enabled() and ends.lead_elsewhere((*rows, *vectors))
        moved = grad(
            rows, probes, vectors, retain_graph=True, create_graph=keep, materialize_grads=True
        )
        return unflatten(moved, of_output)

    return output, pushed


def _blocks(columns: Tensor, inputs: list[Tensor], sizes: list[int], structure: Any) -> Any:
    """The columns of one output's Jacobian as a tree of the inputs' structure."""
    shape = tuple(columns.shape[1:])
    parts = split(movedim(columns, 0, -1), sizes, -1)
    shaped = [p.reshape((*shape, *x.shape)) for p, x in zip(parts, inputs, strict=True)]
    return unflatten(shaped, structure)
