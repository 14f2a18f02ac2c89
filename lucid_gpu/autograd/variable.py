"""`Variable`: what a tensor that records was called before PyTorch 0.4."""

from __future__ import annotations

from typing import Any

from lucid_gpu.autograd.backward import backward
from lucid_gpu.autograd.grad import grad
from lucid_gpu.core.engine import queue_callback
from lucid_gpu.tensor import Tensor


class _Tensors(type):
    def __call__(cls, data: Tensor | None = None, requires_grad: bool = False) -> Tensor:
        """The same memory as a new leaf."""
        if data is None:
            return Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Variable data has to be a tensor, but got {type(data).__name__}; write "
                "lucid_gpu.tensor(data, requires_grad=...)"
            )
        return data.detach()._mark(requires_grad)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor)


class _Engine:
    """What packages ask of PyTorch's engine."""

    queue_callback = staticmethod(queue_callback)

    @staticmethod
    def run_backward(
        tensors: Any,
        grad_tensors: Any,
        keep_graph: bool,
        create_graph: bool,
        inputs: Any = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> tuple[Any, ...]:
        """A pass: gradients of ``inputs``, or with ``accumulate_grad`` added to those of leaves."""
        if accumulate_grad:
            backward(tensors, grad_tensors, keep_graph, create_graph, inputs=inputs or None)
            return ()
        return tuple(
            grad(
                tensors, inputs, grad_tensors, keep_graph, create_graph,
                allow_unused=allow_unreachable,
            )
        )  # fmt: skip


class Variable(metaclass=_Tensors):
    """``Variable(tensor)``: the tensor as a new leaf. Every tensor is an instance."""

    _execution_engine = _Engine()
