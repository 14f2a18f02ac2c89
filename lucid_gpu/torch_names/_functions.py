"""`torch._C._functions`: nodes that programs test for, and two that tests of errors use."""

from __future__ import annotations

from typing import Any

from lucid_gpu import Tensor
from lucid_gpu.autograd import Function
from lucid_gpu.core.node import AccumulateGrad

__all__ = ["AccumulateGrad", "DelayedError", "UndefinedGrad"]


class _Delayed(Function):
    @staticmethod
    def forward(ctx: Any, message: str, *inputs: Tensor) -> Any:
        ctx.message = message
        results = tuple([t.view_as(t) for t in inputs])
        return results[0] if len(results) == 1 else results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(ctx.message)


class _Undefined(Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Any:
        results = tuple([t.view_as(t) for t in inputs])
        return results[0] if len(results) == 1 else results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * len(grads)


class DelayedError:
    """Called with tensors, gives views of them whose backward raises a RuntimeError.

    Parameters
    ----------
    msg : str
        What the error says.
    num_inputs : int
        Of how many tensors.
    """

    def __init__(self, msg: str, num_inputs: int) -> None:
        self.msg, self.num_inputs = msg, num_inputs

    def __call__(self, *inputs: Tensor) -> Any:
        return _Delayed.apply(self.msg, *inputs)


class UndefinedGrad:
    """Called with tensors, gives views of them that pass no gradient on."""

    def __call__(self, *inputs: Tensor) -> Any:
        return _Undefined.apply(*inputs)
