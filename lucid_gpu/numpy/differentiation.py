"""Functions of arrays, differentiated: what HIPS autograd calls `grad`, `jacobian` and so on.

A function is called with tensors in the place of the arrays, numbers and trees of them by which it
is differentiated. Arrays come in, and gradients of their kind go out; where tensors come in, or
inside another such call, tensors go out, which can be differentiated further.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu.autograd.backward import grad as gradients_of
from lucid_gpu.devices import room_of_array
from lucid_gpu.func.graphs import fresh
from lucid_gpu.func.trees import flatten, tree_map, unflatten
from lucid_gpu.numpy.operands import as_tensor, on_memory_of
from lucid_gpu.tape.modes import enable_grad
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["checkpoint", "elementwise_grad", "grad", "hessian", "jacobian", "value_and_grad"]

Argnum = int | Sequence[int]


class _Depth(threading.local):
    """How many of these calls a thread is inside of."""

    calls = 0


_depth = _Depth()


def grad(fun: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
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
        Where the result is no real number, or the argument holds what has no gradient.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> fit = lambda p, x: np.mean((p["a"] * x + p["b"] - 1) ** 2)
    >>> np.grad(fit)({"a": 2.0, "b": 0.0}, np.arange(3.0))
    {'a': 4.666666666666667, 'b': 2.0}
    """

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return value_and_gradient(*args, **kwargs)[1]

    value_and_gradient = value_and_grad(fun, argnum, _name="grad")
    return gradient


def value_and_grad(
    fun: Callable[..., Any], argnum: Argnum = 0, *, _name: str = "value_and_grad"
) -> Callable[..., Any]:
    """The function that computes a function's value and its gradient, as `grad` does.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.value_and_grad(np.square)(3.0)
    (np.float64(9.0), 6.0)
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        with _Call(fun, argnum, args, _name) as call:
            result = call.run(kwargs)
            value = result if isinstance(result, Tensor) else None
            if value is None:
                _refuse_other(result, _name)
            elif value.numel() != 1 or value.dtype.category != 2:
                raise TypeError(
                    f"{_name} takes a function whose result is one real number; this one gave "
                    f"shape {tuple(value.shape)}, {value.dtype.name}. jacobian and "
                    "elementwise_grad take functions whose result is an array"
                )
            gradient = call.pulled_back(value, None)
            return call.out(result), gradient

    return function


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
        with _Call(fun, argnum, args, "elementwise_grad") as call:
            result = call.run(kwargs)
            if not isinstance(result, Tensor):
                _refuse_other(result, "elementwise_grad")
                return call.pulled_back(None, None)
            return call.pulled_back(result.sum(), None)

    return function


def jacobian(fun: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that computes all derivatives of a function's results by an argument.

    Returns
    -------
    callable
        Gives an array of shape ``(*result.shape, *argument.shape)``; a tree of them for an argument
        that is a tree.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        with _Call(fun, argnum, args, "jacobian") as call:
            result = call.run(kwargs)
            if not isinstance(result, Tensor):
                _refuse_other(result, "jacobian")
                result = as_tensor(result)
            return call.pulled_back(result, _unit_cotangents(result))

    return function


def hessian(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function that computes the second derivatives: the `jacobian` of a `jacobian`.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.hessian(lambda x: np.prod(x))(np.array([2.0, 3.0]))
    array([[0., 1.],
           [1., 0.]])
    """
    return jacobian(jacobian(fun, argnum), argnum)


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


class _Call:
    """One call of a function with tensors in the place of some of its arguments."""

    def __init__(
        self, fun: Callable[..., Any], argnum: Argnum, args: tuple[Any, ...], name: str
    ) -> None:
        self.fun, self.args, self.name = fun, list(args), name
        self.many = not isinstance(argnum, int)
        self.places: list[int] = list(argnum) if not isinstance(argnum, int) else [argnum]

    def __enter__(self) -> _Call:
        _depth.calls += 1
        try:
            self._put_tensors()
        except BaseException:
            _depth.calls -= 1
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        _depth.calls -= 1

    def _put_tensors(self) -> None:
        for place in self.places:
            if not -len(self.args) <= place < len(self.args):
                raise TypeError(
                    f"{self.name}: argnum is {place}, but the function was called with "
                    f"{len(self.args)} positional argument{'s' * (len(self.args) != 1)}"
                )
        self.leaves, self.structure = flatten(tuple([self.args[p] for p in self.places]))
        self.tensors = [_leaf(leaf, self.name) for leaf in self.leaves]
        self.further = any(isinstance(leaf, Tensor) for leaf in self.leaves) or _depth.calls > 1
        for place, value in zip(self.places, unflatten(self.tensors, self.structure), strict=True):
            self.args[place] = value

    def run(self, kwargs: dict[str, Any]) -> Any:
        with enable_grad():
            return self.fun(*self.args, **kwargs)

    def pulled_back(self, result: Tensor | None, cotangents: Tensor | None) -> Any:
        """The gradients of the result by the arguments, in their structure."""
        if result is None or not result.requires_grad:
            warnings.warn(
                f"{self.name}: the function's result does not depend on the argument", stacklevel=3
            )
            found: Sequence[Any] = [None] * len(self.tensors)
        else:
            found = gradients_of(
                result if cotangents is not None or result.ndim == 0 else result.sum(),
                self.tensors,
                cotangents,
                create_graph=self.further,
                allow_unused=True,
                is_grads_batched=cotangents is not None,
            )
        shape = () if result is None or cotangents is None else tuple(result.shape)
        gradients = [
            self._as_given(_shaped(g, t, shape), leaf)
            for g, t, leaf in zip(found, self.tensors, self.leaves, strict=True)
        ]
        whole = unflatten(gradients, self.structure)
        return whole if self.many else whole[0]

    def _as_given(self, gradient: Tensor, leaf: Any) -> Any:
        if self.further:
            return gradient
        array = gradient.array
        if room_of_array(leaf) is None or isinstance(leaf, np.generic):
            return array.item() if array.ndim == 0 else array
        return array

    def out(self, result: Any) -> Any:
        """What the function gave, as arrays unless somebody differentiates further."""
        return result if self.further else tree_map(_plain, result)


def _leaf(value: Any, name: str) -> Tensor:
    """A tensor to differentiate by, on the memory of the array it stands for."""
    if isinstance(value, Tensor):
        found = value
    elif isinstance(value, (bool, np.bool)) or value is None:
        raise TypeError(f"{name}: there is no gradient by {value!r}, a {type(value).__name__}")
    elif isinstance(value, (int, float, complex)):
        kind = np.complex128 if isinstance(value, complex) else np.float64
        found = from_array(np.asarray(value, kind))
    elif room_of_array(value) is not None:
        found = on_memory_of(value if isinstance(value, np.generic) else value.view())
    else:
        raise TypeError(
            f"{name}: there is no gradient by a {type(value).__name__}; the argument may hold "
            "arrays and numbers, and dicts, lists and tuples of them"
        )
    if found.dtype.category < 2:
        raise TypeError(
            f"{name}: there is no gradient by an array of {found.dtype.name}; write x.astype(float)"
        )
    return fresh(found)


def _shaped(gradient: Tensor | None, leaf: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A gradient of shape ``(*shape, *leaf.shape)``; zeros where there is none."""
    whole = (*shape, *leaf.shape)
    if gradient is None:
        from lucid_gpu.ops.creation import zeros

        return zeros(whole, dtype=leaf.dtype, device=leaf.device)
    return gradient.reshape(whole)


def _unit_cotangents(result: Tensor) -> Tensor:
    from lucid_gpu.ops.creation import eye

    n = result.numel()
    return eye(n, dtype=result.dtype, device=result.device).reshape((n, *result.shape))


def _plain(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    array = value.detach().array
    return array[()] if isinstance(array, np.ndarray) and array.ndim == 0 else array


def _refuse_other(result: Any, name: str) -> None:
    if room_of_array(result) is None and not isinstance(result, (int, float)):
        raise TypeError(
            f"{name} takes a function whose result is an array or a number; this one gave a "
            f"{type(result).__name__}"
        )
