"""Derivatives along a direction, and gradients beside other results: HIPS autograd's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu.autograd.grad import grad as gradients_of
from lucid_gpu.func.trees import flatten, tree_map, unflatten
from lucid_gpu.numpy.calls import Argnum, Call, plain, results_of, shaped
from lucid_gpu.numpy.differentiation import grad
from lucid_gpu.numpy.operands import as_tensor
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor

__all__ = ["grad_and_aux", "hessian_vector_product", "make_ggnvp", "make_jvp", "make_vjp"]


def grad_and_aux(fun: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that computes the gradient of the first of two results, and the other.



    Raises
    ------
    TypeError
        When called, for a function that does not give two results.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.grad_and_aux(lambda x: (x**2, x + 1))(3.0)
    (6.0, np.float64(4.0))
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        kept: list[Any] = []

        def first(*args: Any, **kwargs: Any) -> Any:
            results = fun(*args, **kwargs)
            if not isinstance(results, tuple) or len(results) != 2:
                raise TypeError(
                    "grad_and_aux takes a function with two results, a number and what comes "
                    f"along; this one gave a {type(results).__name__}"
                )
            kept.append(results[1])
            return results[0]

        gradient = grad(first, argnum, _name="grad_and_aux")(*args, **kwargs)
        inside = any(isinstance(leaf, Tensor) for leaf in flatten(args)[0]) or state.of_arrays
        return gradient, kept[0] if inside else tree_map(plain, kept[0])

    return function


def make_vjp(fun: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that gives what pulls a cotangent back, and the function's value.

    ``fun`` may return a tree of arrays and numbers; the cotangent has the same structure.

    Raises
    ------
    TypeError
        When called, for a cotangent of another structure.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> vjp, value = np.make_vjp(np.sin)(np.zeros(2))
    >>> vjp(np.array([3.0, 4.0]))
    array([3., 4.])
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        with Call(fun, argnum, args, "make_vjp") as call:
            value = call.run(kwargs)
            results, structure = results_of(value, "make_vjp")

        def vjp(cotangent: Any) -> Any:
            given = [cotangent]
            if structure.kind is not None:
                given, like = flatten(cotangent)
                if like != structure:
                    raise TypeError(
                        f"the cotangent must have the structure of the function's value, "
                        f"{structure}, got {like}"
                    )
            roots, along = [], []
            for result, v in zip(results, given, strict=True):
                if result.requires_grad:
                    roots.append(result)
                    along.append(as_tensor(v, result).to(result.dtype).reshape(result.shape))
            if not roots:
                return call.pulled_back(None, None)
            grads = gradients_of(
                roots,
                call.tensors,
                along,
                retain_graph=True,
                create_graph=call.further,
                allow_unused=True,
            )
            return call.in_structure(
                [shaped(g, t, ()) for g, t in zip(grads, call.tensors, strict=True)]
            )

        return vjp, call.out(value)

    return function


def make_jvp(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function that gives what pushes a tangent forward, beside the function's value.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.make_jvp(np.sin)(np.zeros(2))(np.array([3.0, 4.0]))
    (array([0., 0.]), array([3., 4.]))
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        def jvp(tangent: Any) -> Any:
            from lucid_gpu.func import jvp as push

            with Call(fun, argnum, args, "make_jvp") as call:
                position = call.positions[0]

                def of_one(x: Any) -> Any:
                    result = fun(*call.args[:position], x, *call.args[position:][1:], **kwargs)
                    return unflatten(*results_of(result, "make_jvp"))

                argument = call.args[position]
                leaves, structure = flatten(tangent)
                along = [
                    as_tensor(v, t).to(t.dtype) for v, t in zip(leaves, call.tensors, strict=True)
                ]
                return tuple(
                    [call.out(r) for r in push(of_one, (argument,), (unflatten(along, structure),))]
                )

        return jvp

    return function


def hessian_vector_product(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function of ``(*args, vector)`` that computes the Hessian's product with a vector.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.hessian_vector_product(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.ones(2))
    array([ 6., 12.])
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        *arguments, vector = args

        def along(*arguments: Any, **kwargs: Any) -> Any:
            slopes, vectors = flatten(slope(*arguments, **kwargs))[0], flatten(vector)[0]
            return sum(
                [(s * v).sum() for s, v in zip(slopes, vectors, strict=True) if s is not None]
            )

        return grad(along, argnum, _name="hessian_vector_product")(*arguments, **kwargs)

    slope = grad(fun, argnum)
    return function


def make_ggnvp(
    f: Callable[..., Any], g: Callable[[Any], Any] | None = None, f_argnum: int = 0
) -> Callable[..., Any]:
    """Return the function that gives products with the generalized Gauss-Newton matrix of g(f(x)).

    The matrix is ``J.T @ H @ J``, J the Jacobian of ``f`` by argument ``f_argnum`` and H the
    Hessian of ``g`` at its value, by default of half the sum of squares (Schraudolph 2002,
    "Fast curvature matrix-vector products").

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.make_ggnvp(lambda x: x**2)(np.array([1.0, 2.0]))(np.ones(2))
    array([ 4., 16.])
    """

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        pull, _ = make_vjp(f, f_argnum)(*args, **kwargs)
        push = make_jvp(f, f_argnum)(*args, **kwargs)

        def product(v: Any) -> Any:
            value, along = push(v)
            return pull(along if g is None else hessian_vector_product(g)(value, along))

        return product

    return function
