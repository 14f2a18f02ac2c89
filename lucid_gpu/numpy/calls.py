"""One call of a function of arrays, with tensors in the place of some of its arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu.autograd.backward import gradients
from lucid_gpu.autograd.grad import grad
from lucid_gpu.autograd.graph import get_gradient_edge
from lucid_gpu.devices import backend_of_array
from lucid_gpu.func.graphs import fresh
from lucid_gpu.func.trees import Structure, flatten, tree_map, unflatten
from lucid_gpu.numpy.operands import as_tensor, on_memory_of
from lucid_gpu.ops.record import constant
from lucid_gpu.ops.shape import base_array
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import enable_grad, state
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["Argnum", "Call", "plain", "refuse_other", "results_of", "shaped"]

Argnum = int | Sequence[int]


class Call:
    """One call of a function with tensors in the place of some of its arguments."""

    def __init__(
        self, fun: Callable[..., Any], argnum: Argnum, args: tuple[Any, ...], name: str
    ) -> None:
        if not callable(fun):
            raise TypeError(f"{name} takes a function, got a {type(fun).__name__}")
        self.fun, self.args, self.name = fun, list(args), name
        self.many = isinstance(argnum, (list, tuple))
        self.positions: list[int] = []
        for position in argnum if isinstance(argnum, (list, tuple)) else [argnum]:
            if not isinstance(position, (int, np.integer)) or isinstance(position, bool):
                raise TypeError(
                    f"{name}: argnum is an int or a sequence of ints, got {argnum!r}; it counts "
                    "positional arguments"
                )
            self.positions.append(int(position))

    def __enter__(self) -> Call:
        state.of_arrays += 1
        try:
            self._put_tensors()
        except BaseException:
            state.of_arrays -= 1
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        state.of_arrays -= 1

    def _put_tensors(self) -> None:
        for position in self.positions:
            if not -len(self.args) <= position < len(self.args):
                raise TypeError(
                    f"{self.name}: argnum is {position}, but the function was called with "
                    f"{len(self.args)} positional argument{'s' * (len(self.args) != 1)}"
                )
        self.leaves, self.structure = flatten(tuple([self.args[p] for p in self.positions]))
        put = [None if leaf is None else _leaf(leaf, self.name) for leaf in self.leaves]
        self.tensors = [t for t in put if t is not None]
        self.further = any(isinstance(leaf, Tensor) for leaf in self.leaves) or state.of_arrays > 1
        for position, value in zip(self.positions, unflatten(put, self.structure), strict=True):
            self.args[position] = value

    def run(self, kwargs: dict[str, Any]) -> Any:
        with enable_grad():
            return self.fun(*self.args, **kwargs)

    def pulled_back(
        self, result: Tensor | None, cotangents: Tensor | None, read: bool = False
    ) -> Any:
        """The gradients of the result, by default of its sum, in the arguments' structure.

        ``read``: its value is asked for too, and may come out of the kernels of the gradients.
        """
        if result is None or not result.requires_grad:
            warnings.warn(
                f"{self.name}: the function's result does not depend on the argument", stacklevel=3
            )
            grads: Sequence[Any] = [None] * len(self.tensors)
        elif cotangents is None and result.dtype.category == 2:
            whole = read or bool(open_levels)
            root = result if whole else get_gradient_edge(result)
            grads = gradients(
                [root], self.tensors, [constant(1.0, result)], self.further, self.further
            )
        else:
            grads = grad(
                result.sum() if cotangents is None and result.ndim else result,
                self.tensors,
                cotangents,
                create_graph=self.further,
                retain_graph=cotangents is not None or None,  # other results may share it
                allow_unused=True,
                is_grads_batched=cotangents is not None,
            )
        shape = () if result is None or cotangents is None else tuple(result.shape)
        return self.in_structure(
            [shaped(g, t, shape) for g, t in zip(grads, self.tensors, strict=True)]
        )

    def in_structure(self, grads: Sequence[Tensor]) -> Any:
        """Gradients as the arguments are: in their trees, of their library; None by None."""
        rest = iter(grads)
        gradients = [
            None if leaf is None else self._like_leaf(next(rest), leaf) for leaf in self.leaves
        ]
        whole = unflatten(gradients, self.structure)
        return whole if self.many else whole[0]

    def _like_leaf(self, gradient: Tensor, leaf: Any) -> Any:
        if self.further:
            return gradient
        array = base_array(gradient.resolve_conj().resolve_neg())
        if array.ndim or isinstance(leaf, np.ndarray):
            return array
        return (
            array[()]
            if isinstance(leaf, np.generic)
            else array.item()
            if backend_of_array(leaf) is None
            else array
        )

    def out(self, result: Any) -> Any:
        """What the function gave, as arrays unless somebody differentiates further."""
        return result if self.further else tree_map(plain, result)


def _leaf(value: Any, name: str) -> Tensor:
    """A tensor to differentiate by, on the memory of the array it stands for."""
    if isinstance(value, Tensor):
        _refuse_whole_numbers(value, name)
        return fresh(value)
    if isinstance(value, (bool, np.bool)):
        raise TypeError(f"{name}: there is no gradient by {value!r}, a {type(value).__name__}")
    if isinstance(value, (int, float, complex)):
        kind = np.complex128 if isinstance(value, complex) else np.float64
        leaf = from_array(np.asarray(value, kind))
    elif backend_of_array(value) is not None:
        leaf = on_memory_of(value if isinstance(value, np.generic) else value.view())
    else:
        raise TypeError(
            f"{name}: there is no gradient by a {type(value).__name__}; the argument may hold "
            "arrays and numbers, and dicts, lists and tuples of them"
        )
    _refuse_whole_numbers(leaf, name)
    leaf._cell().borrowed = True  # a write copies it first
    return leaf._mark()


def _refuse_whole_numbers(leaf: Tensor, name: str) -> None:
    if leaf.dtype.category < 2:
        raise TypeError(
            f"{name}: there is no gradient by an array of {leaf.dtype.name}; write x.astype(float)"
        )


def shaped(gradient: Tensor | None, leaf: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A gradient of shape ``(*shape, *leaf.shape)``; zeros where there is none."""
    whole = (*shape, *leaf.shape)
    if gradient is None:
        from lucid_gpu.ops.creation import zeros

        return zeros(whole, dtype=leaf.dtype, device=leaf.device)
    return gradient if tuple(gradient.shape) == whole else gradient.reshape(whole)


def plain(value: Any) -> Any:
    """A tensor's array; one of NumPy's numbers where it has no dimensions."""
    if not isinstance(value, Tensor):
        return value
    array = value.detach().array
    return array[()] if isinstance(array, np.ndarray) and array.ndim == 0 else array


def refuse_other(result: Any, name: str) -> None:
    """Raise for what a function gave besides arrays and numbers."""
    if backend_of_array(result) is None and not isinstance(result, (int, float)):
        raise TypeError(
            f"{name} takes a function whose result is an array or a number; this one gave a "
            f"{type(result).__name__}"
        )


def results_of(value: Any, name: str) -> tuple[list[Tensor], Structure]:
    """The arrays and numbers that a function gave, as tensors, and the tree they came in."""
    leaves, structure = flatten(value)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            refuse_other(leaf, name)
    return [as_tensor(leaf) for leaf in leaves], structure
