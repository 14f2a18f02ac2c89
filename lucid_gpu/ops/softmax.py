"""Softmax and its logarithm.

On a GPU they are kernels of their own, which read and write every element once; for small arrays on
the CPU a few calls of NumPy. Large arrays there need but one primitive, the log of a sum of
exponentials: ``log_softmax(x) = x - lse(x)`` and ``softmax(x) = exp(x - lse(x))``. The gradient of
``lse`` is ``exp(x - lse)``: one number a row is all that is saved beside the input, and everything
elementwise around it fuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.devices import xp_of
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.kernels import softmax as kernels
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.ops.arguments import guarded, told
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import normalise_dim
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import is_grad_enabled, no_grad
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["log_softmax", "softmax"]

SMALL = 1 << 18  # elements up to which a few array operations beat fused kernels


def _logsumexp(input: Tensor, dim: int) -> Tensor:
    """As `reductions.logsumexp`, with the dimension kept, but one node: its value is saved."""
    value = from_array(_lse(input, dim), input.dtype, input.device)

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        (x,) = node.saved_tensors
        return (g * _softmax_of(x, dim, value),)

    return record("LogsumexpBackward0", value.array, (input,), vjp, saved=(input,))


def _softmax_of(x: Tensor, dim: int, value: Tensor) -> Tensor:
    """``exp(x - lse(x))`` where the value of lse is known; differentiable if need be."""
    return (x - (_logsumexp(x, dim) if is_grad_enabled() else value)).exp()


def _lse(input: Tensor, dim: int) -> Any:
    """The array ``log(sum(exp(x)))``, the dimension kept."""
    wide = input.dtype.compute.numpy
    if not input.numel():
        return xp_of(input).zeros_like(input.array).sum(axis=dim, keepdims=True)
    lowest = xp_of(input).finfo(wide).min  # -inf - -inf would be NaN
    if input.numel() <= SMALL:
        x = input.array.astype(wide, copy=False)
        total = run_quietly(_lse_of_small, xp_of(input), x, dim, lowest)
        return total.astype(input.dtype.numpy, copy=False)
    with no_grad():
        top = input.amax(dim, keepdim=True).clamp(min=lowest.item())
        return ((input - top).exp().sum(dim, keepdim=True).log() + top).array


def _lse_of_small(xp: Any, x: Any, dim: int, lowest: Any) -> Any:
    top = xp.maximum(x.max(axis=dim, keepdims=True), lowest)
    return xp.log(xp.exp(x - top).sum(axis=dim, keepdims=True)) + top


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
    """
    input, dim = _prepared("log_softmax", input, dim, dtype)
    if not input.numel():
        return input.clone()
    if _is_row_wise(input):
        return _by_rows(input, dim, True)
    return input - _logsumexp(input, dim)


def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along a dimension; arguments as for `log_softmax`."""
    input, dim = _prepared("softmax", input, dim, dtype)
    if not input.numel():
        return input.clone()
    if _is_row_wise(input):
        return _by_rows(input, dim, False)
    return (input - _logsumexp(input, dim)).exp()


def _as_method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of tensors and of `lucid_gpu`: the dimension is not optional there."""

    def method(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
        try:
            return function(input, dim, dtype)
        except AttributeError as error:
            raise told(function, error, (input,)) from None

    method.__name__ = method.__qualname__ = function.__name__
    method.__doc__ = function.__doc__
    return method


def _is_row_wise(input: Tensor) -> bool:
    if not input.ndim:
        return False
    return runs_cuda_c(input.device) or 0 < input.numel() <= SMALL


def _by_rows(input: Tensor, dim: int, log: bool) -> Tensor:
    """One op, whose gradient reads the result: a kernel each way, or a few calls of NumPy."""
    axis = dim
    on_host = not runs_cuda_c(input.device)
    forward = kernels.on_host if on_host else kernels.softmax
    backward = kernels.gradient_on_host if on_host else kernels.gradient

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        (y,) = node.saved_tensors
        if is_grad_enabled() or open_levels:
            if log:
                return (g - y.exp() * g.sum(axis, keepdim=True),)
            return (y * (g - (y * g).sum(axis, keepdim=True)),)
        return (from_array(run_quietly(backward, y.array, g.array, axis, log), y.dtype, y.device),)

    name = "LogSoftmaxBackward0" if log else "SoftmaxBackward0"
    y = run_quietly(forward, input.array, axis, log)
    return record(name, y, (input,), vjp, dtype=input.dtype, keeps_output=True)


def _prepared(name: str, input: Tensor, dim: int | None, dtype: Any) -> tuple[Tensor, int]:
    if dtype is not None:
        input = input.to(dtype)
    if not input.is_floating_point():
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype}; cast the input, or pass dtype='
        )
    return input, normalise_dim(_old_default(input) if dim is None else dim, input.ndim)


def _old_default(input: Tensor) -> int:
    """The dimension PyTorch takes where none is named."""
    return 0 if input.ndim in (0, 1, 3) else 1


METHODS = tuple(map(_as_method, (softmax, log_softmax)))
for _function in METHODS:
    setattr(Tensor, _function.__name__, guarded(_function))
