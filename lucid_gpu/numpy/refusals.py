"""What is refused, by which sentence, and results written where ``out=`` says."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.dtypes import from_numpy_dtype
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tensor import Tensor

__all__ = ["lost_in_array", "no_gradient", "takes_out", "unsupported", "write_into", "writes_at"]


def unsupported(name: str) -> TypeError:
    """The error of a function that tensors do not have."""
    return TypeError(
        f"{name} does not take lucid_gpu's tensors. Where no gradient is needed, give it an array: "
        "t.detach().numpy() (t.detach().cupy() on a GPU)"
    )


def no_gradient(name: str) -> RuntimeError:
    """The error of a function without a gradient that was to be differentiated."""
    return RuntimeError(
        f"{name} has no gradient here, but one of its arguments requires grad. Give it t.detach() "
        "if that is meant"
    )


def lost_in_array(name: str) -> RuntimeError:
    """The error of a write into an array that would lose the gradient."""
    return RuntimeError(
        f"{name} would write a tensor that requires grad into an array, which keeps no gradient. "
        "Write into a tensor (numpy.zeros_like(x) of a tensor is one), or join parts by "
        "numpy.where, numpy.stack or numpy.concatenate"
    )


def write_into(out: Any, result: Tensor, name: str) -> Any:
    """Write a result into ``out``, a tensor or an array.

    Raises
    ------
    RuntimeError
        If the result requires grad.
    """
    if isinstance(out, tuple):
        (out,) = out
    if result.requires_grad or (
        isinstance(out, Tensor) and out.requires_grad and is_grad_enabled()
    ):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad. Without out= (and without += on an array) "
            "the result is a new tensor: a = a + t"
        )
    if tuple(out.shape) != tuple(result.shape):
        raise ValueError(
            f"{name}(): non-broadcastable output operand with shape {tuple(out.shape)} doesn't "
            f"match the broadcast shape {tuple(result.shape)}"
        )
    d = out.dtype if isinstance(out, Tensor) else from_numpy_dtype(out.dtype)
    if not np.can_cast(result.dtype.numpy, d.numpy, "same_kind"):
        raise TypeError(
            f"{name}(): cannot cast the result from {result.dtype.name} to {d.name}, the type of "
            "out"
        )
    if isinstance(out, Tensor):
        return out.copy_(result)
    out[...] = result.array
    return out


def takes_out(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Let a function with a parameter ``out`` write its result there."""
    parameters = inspect.signature(function).parameters
    position = list(parameters).index("out")
    if parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY:
        position = sys.maxsize

    return functools.wraps(function)(writes_at(position, function.__name__, function))


def writes_at(position: int, name: str, function: Callable[..., Tensor]) -> Callable[..., Any]:
    """A function whose argument ``out``, there or by name, is where its result is written."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            out = args[position]
            args = (*args[:position], None, *args[position + 1 :])
        else:
            out = kwargs.pop("out", None)
        result = function(*args, **kwargs)
        return result if out is None else write_into(out, result, f"numpy.{name}")

    return wrapper
