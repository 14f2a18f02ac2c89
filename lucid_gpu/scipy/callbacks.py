"""Functions of tensors that SciPy's solvers call: with NumPy's arrays, one problem at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.func.batching import unbatched
from lucid_gpu.func.transforms import vjp
from lucid_gpu.func.trees import flatten, unflatten
from lucid_gpu.numpy.operands import as_tensor, on_memory_of
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.shape import stack
from lucid_gpu.scipy.rows import computed
from lucid_gpu.tape.modes import enable_grad, no_grad
from lucid_gpu.tape.rules import Batch
from lucid_gpu.tensor import Tensor


class Given(NamedTuple):
    """What a solver was given, apart.

    Attributes
    ----------
    tensors : list of Tensor
        Those that it has derivatives by, in float64: first its own operands, then those of `args`.
    dtype, device
        Of the results: what the tensors have.
    put : callable
        From tensors in the places of those in `args` to the arguments for the user's function.
    """

    tensors: list[Tensor]
    dtype: Any
    device: Any
    put: Callable[[Any], Any]


def given(name: str, operands: tuple[Any, ...], args: Any) -> Given:
    """Take the tensors out of a solver's operands and `args`; solvers compute in float64.

    Raises
    ------
    TypeError
        For complex numbers.
    """
    args = args if isinstance(args, tuple) else (args,)
    leaves, structure = flatten(args)
    every = [leaf for leaf in (*operands, *leaves) if isinstance(leaf, Tensor)]
    first = every[0]
    where = next((t.device for t in every if t.is_cuda), first.device)
    own = [as_tensor(x, first) for x in operands]
    if any(t.dtype.is_complex for t in (*own, *every)):
        raise TypeError(f"scipy.{name} takes real numbers; give it real and imaginary parts apart")
    kinds = [t.dtype for t in every if t.dtype.is_floating_point]
    d = functools.reduce(dt.promote_types, kinds) if kinds else dt.float64
    places = [
        i for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.dtype.is_floating_point
    ]

    def put(tensors: Any) -> Any:
        filled = list(leaves)
        for place, value in zip(places, tensors, strict=True):
            filled[place] = value
        return unflatten(filled, structure)

    wide = [t.to(where, dt.float64) for t in (*own, *[leaves[i] for i in places])]
    return Given(wide, dt.float32 if d.itemsize == 2 else d, where, put)


def on_host(value: Tensor) -> Any:
    """Return a tensor's values as an array of NumPy."""
    return value.detach().cpu().numpy()


def called_with_arrays(
    name: str, function: Callable[..., Any], device: Any, arrays: Any, closed: bool = True
) -> Any:
    """Return `function` of tensors, the last of which are `arrays`, as SciPy calls it.

    Arrays of the host go in and out; `function` computes on `device`. Where it is `closed`, it may
    not read other tensors that have derivatives, for which nothing would come back: RuntimeError.
    """
    tensors = [on_memory_of(a) for a in arrays]
    seen = not closed

    def call(*values: Any) -> Any:
        nonlocal seen
        given = [tensor(np.asarray(v, np.float64), device=device) for v in values]
        with no_grad() if seen else enable_grad():
            result = function(*given, *tensors)
        if closed and (result._wrapper is not None or result.requires_grad):
            raise RuntimeError(
                f"scipy.{name}: the function reads a tensor that has a derivative and is not among "
                "its arguments; pass it by args=(...), or detach() it"
            )
        seen = True
        return on_host(result)

    return call


def pulled_by(function: Callable[..., Tensor], tensors: Any, by: list[int]) -> Any:
    """Return `function` of `tensors` and what pulls cotangents back to those numbered `by`."""

    def of_some(*some: Tensor) -> Tensor:
        every = dict(enumerate(tensors)) | dict(zip(by, some, strict=True))
        return function(*every.values())

    return vjp(of_some, *[tensors[i] for i in by])


def driven(name: str, compute: Callable[..., Any], *tensors: Tensor) -> Any:
    """Return the array that `compute` gives of arrays: of one problem, whatever vmaps are open."""

    def alone(*arrays: Any) -> Any:
        with unbatched():
            return compute(*arrays)

    return computed(name, alone, *tensors)


def one_by_one(level: Batch, f: Any, *args: Any) -> Any:
    """Solve each example of a batch apart: the batching rule of ops that SciPy computes."""

    def example(value: Any, number: int) -> Any:
        return level.value(value)[number] if level.holds(value) else value

    return level.wrap(stack([f(*[example(v, b) for v in args]) for b in range(level.size)]))
