"""Functions of arrays, differentiated: what HIPS autograd calls `grad`, `jacobian` and so on.

A function is called with tensors in the place of the arrays, numbers and trees of them by which it
is differentiated. Arrays come in, and gradients of their kind go out; where tensors come in, or
inside another such call, tensors go out, which can be differentiated further.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu.func.trees import unflatten
from lucid_gpu.numpy.calls import Argnum, Call, refuse_other, results_of
from lucid_gpu.tensor import Tensor

__all__ = ["checkpoint", "elementwise_grad", "grad", "hessian", "jacobian", "value_and_grad"]


def grad(fun: Callable[..., Any], argnum: Argnum = 0, *, _name: str = "grad") -> Callable[..., Any]:
    """The function that computes the gradient of a function with one number as its result.

    Parameters
    ----------
    fun : callable
        Of arrays, numbers, and dicts, lists and tuples of them, written in NumPy's functions or in
        those of `lucid_gpu`.
    argnum : int or sequence of int
        By which positional arguments to differentiate; a tuple of gradients for a sequence.

    Returns
    -------
    callable
        Takes what ``fun`` takes. Gradients have the structure, shapes and types of the argument,
        and are arrays of the library (NumPy or CuPy) that the argument was of.

    Raises
    ------
    TypeError
        If the result is no real number, or the argument holds what has no gradient.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> fit = lambda p, x: np.mean((p["a"] * x + p["b"] - 1) ** 2)
    >>> np.grad(fit)({"a": 2.0, "b": 0.0}, np.arange(3.0))
    {'a': 4.666666666666667, 'b': 2.0}
    """

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        with Call(fun, argnum, args, _name) as call:
            return call.pulled_back(_one_number(call.run(kwargs), _name), None)

    return gradient


def value_and_grad(fun: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that computes a function's value and its gradient, as `grad` does.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.value_and_grad(np.square)(3.0)
    (np.float64(9.0), 6.0)
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        with Call(fun, argnum, args, "value_and_grad") as call:
            result = call.run(kwargs)
            value = _one_number(result, "value_and_grad")
            gradient = call.pulled_back(value, None, read=True)
            return call.out(result), gradient

    return function


def _one_number(result: Any, name: str) -> Tensor | None:
    """A function's result, which must be one real number; None where it depends on no tensor."""
    if not isinstance(result, Tensor):
        refuse_other(result, name)
        return None
    if result.numel() != 1 or result.dtype.category != 2:
        raise TypeError(
            f"{name} takes a function whose result is one real number; this one gave shape "
            f"{tuple(result.shape)}, {result.dtype.name}. jacobian and elementwise_grad take "
            "functions whose result is an array"
        )
    return result


def elementwise_grad(fun: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that computes the gradient of the sum of a function's results.

    For a function that treats every element by itself it is the derivative at each.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.elementwise_grad(np.tanh)(np.zeros(3))
    array([1., 1., 1.])
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        with Call(fun, argnum, args, "elementwise_grad") as call:
            result = call.run(kwargs)
            if not isinstance(result, Tensor):
                refuse_other(result, "elementwise_grad")
                return call.pulled_back(None, None)
            return call.pulled_back(result, None)

    return function


def jacobian(fun: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that computes all derivatives of a function's results by an argument.

    Returns
    -------
    callable
        Gives an array of shape ``(*result.shape, *argument.shape)``; a tree of them for an argument
        that is a tree, and a tree of those for a result that is one.

    Raises
    ------
    TypeError
        When called, for a function whose results are complex.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        with Call(fun, argnum, args, "jacobian") as call:
            results, structure = results_of(call.run(kwargs), "jacobian")
            if any(result.dtype.category == 3 for result in results):
                raise TypeError(
                    "jacobian takes a function whose results are real; give it the real and the "
                    "imaginary part: numpy.stack([numpy.real(z), numpy.imag(z)])"
                )
            return unflatten(
                [call.pulled_back(result, _unit_cotangents(result)) for result in results],
                structure,
            )

    return function


def hessian(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function that computes the second derivatives: the `jacobian` of a `jacobian`.



    Raises
    ------
    TypeError
        When called, for an argument that is neither an array nor a number.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.hessian(lambda x: np.prod(x))(np.array([2.0, 3.0]))
    array([[0., 1.],
           [1., 0.]])
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        if type(argnum) is not int or any(
            isinstance(a, (dict, list, tuple)) for a in args[argnum:][:1]
        ):
            raise TypeError(
                "hessian takes one argument that is an array or a number; hessian_vector_product "
                "takes dicts, lists and tuples of them"
            )
        return second(*args, **kwargs)

    second = jacobian(jacobian(fun, argnum), argnum)
    return function


def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, computed again in the backward pass instead of kept.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> step = np.checkpoint(lambda x: np.sin(np.exp(x)))
    >>> np.grad(lambda x: step(step(x)))(0.0)
    -0.85341...
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        from lucid_gpu.utils.checkpoint import checkpoint as run

        return run(fun, *args, use_reentrant=False, **kwargs)

    return function


def _unit_cotangents(result: Tensor) -> Tensor:
    from lucid_gpu.ops.creation import eye

    n = result.numel()
    return eye(n, dtype=result.dtype, device=result.device).reshape((n, *result.shape))
