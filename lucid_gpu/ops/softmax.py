"""Softmax and its logarithm.

On a GPU they are kernels of their own, which read and write every element once; on the CPU a few
calls of NumPy over blocks of rows. The gradient reads the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.core.program import loads_of
from lucid_gpu.dtypes import as_dtype, unimplemented
from lucid_gpu.kernels import softmax as kernels
from lucid_gpu.ops.arguments import guarded, require_tensor, takes_out
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import own
from lucid_gpu.tape.door import body_of, op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, of_kept

__all__ = ["log_softmax", "softmax"]


@op(autocast={"cuda": "float32"})
def log_softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`: ``x - logsumexp(x)``.

    Parameters
    ----------
    input : Tensor
    dim : int
    dtype : dtype, optional
        What the input is cast to first.

    Returns
    -------
    Tensor, of input's shape

    Raises
    ------
    NotImplementedError
        For types that are not floating point.
    IndexError
        For a ``dim`` that there is not.
    """
    input, dim = _prepared("log_softmax", input, dim, dtype)
    if 0 in input._expr.shape:
        return _nothing(input)
    return _by_rows(input, dim, True)


@op(autocast={"cuda": "float32"})
def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along a dimension; arguments as in `log_softmax`.

    NotImplementedError for types that are not floating point; IndexError for a ``dim`` that there
    is not.
    """
    input, dim = _prepared("softmax", input, dim, dtype)
    if 0 in input._expr.shape:
        return _nothing(input)
    return _by_rows(input, dim, False)


def _nothing(input: Tensor) -> Tensor:
    """No elements, of the input's type, with derivatives of every order."""
    return input.exp() if input.dtype.category > 1 else input.clone()


def _as_method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of tensors and of `lucid_gpu`: the dimension is not optional there."""
    body = body_of(function)

    @takes_out
    def method(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
        return body(input, dim, dtype)

    method.__name__ = method.__qualname__ = function.__name__
    method.__doc__ = function.__doc__
    return op(method, autocast={"cuda": "float32"})


@op
def _by_rows(input: Tensor, dim: int, log: bool) -> Tensor:
    """One op, whose gradient reads the result: a kernel each way, or a few calls of NumPy."""
    program = input._expr.program
    if not input._expr.shape:
        return own(_by_rows(input.reshape(1), 0, log).reshape(()))
    name = "LogSoftmaxBackward0" if log else "SoftmaxBackward0"
    return record(
        name,
        kernels.forward(input.array, dim, log),
        (input,),
        _gradient,
        keeps_output=True,
        results=loads_of(program),
        gives_new=True,
        axis=dim,
        log=log,
    )


def _gradient(node: Any, g: Tensor) -> tuple[Tensor]:
    (y,) = node.saved_values
    axis, log = node.axis, node.log
    if state.grad or open_levels:
        if log:
            return (g - y.exp() * g.sum(axis, keepdim=True),)
        return (y * (g - (y * g).sum(axis, keepdim=True)),)
    dx = kernels.backward(y.array, g.array, axis, log)
    return (of_kept(loads_of(y._expr.program)[0], dx),)


@batching(_by_rows)
def _by_rows_batched(level: Batch, f: Any, x: Tensor, dim: int, log: bool) -> Any:
    values = level.value(x)
    if not x.ndim:  # one number an example
        return level.wrap(f(values.unsqueeze(-1), 1, log).squeeze(-1))
    return level.wrap(f(values, normalize_dim(dim, x.ndim) + 1, log))


def _prepared(name: str, input: Tensor, dim: int | None, dtype: Any) -> tuple[Tensor, int]:
    if type(input) is not Tensor:
        require_tensor(name, "input", 1, input)
    if dtype is not None:
        input = input.to(as_dtype(dtype))
    program = input._expr.program
    if program.dtype.category != 2 and 0 not in input._expr.shape:
        raise unimplemented(name, input.dtype, "; cast the input, or pass dtype=")
    rank = len(input._expr.shape)
    return input, normalize_dim(_old_default(input) if dim is None else dim, rank)


def _old_default(input: Tensor) -> int:
    """The dimension PyTorch takes where none is named."""
    return 0 if input.ndim in (0, 1, 3) else 1


METHODS = tuple(map(_as_method, (softmax, log_softmax)))
attach(Tensor, *map(guarded, METHODS))
