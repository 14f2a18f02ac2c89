"""Saved tensors in the hands of saved-tensor hooks."""

from __future__ import annotations

from typing import Any

from lucid_gpu.core.node import Node
from lucid_gpu.core.value import Like
from lucid_gpu.fusion.region import edge_of
from lucid_gpu.tape.modes import OFF, set_mode
from lucid_gpu.tensor import Tensor

PACK_WROTE = (
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack "
    "hook cannot be modified by in-place operations as this can lead to unexpected side-effects. "
    "Return a changed copy instead (x * 2, not x.mul_(2))."
)


class Packed:
    """What a pack hook made of a saved tensor, and where the tensor's gradient goes.

    Attributes
    ----------
    data : object
        What the pack hook returned.
    unpack_hook : callable
    edge : (Node or None, int) or None
        None for tensors without a gradient; the node is None for an output of the node that saved
        it, which would hold itself.
    like : Like
        The tensor.
    """

    __slots__ = ("data", "edge", "like", "unpack_hook")

    def __init__(self, value: Tensor, edge: Any, hooks: tuple[Any, Any]) -> None:
        pack_hook, self.unpack_hook = hooks
        self.edge, self.like = edge, Like(value._expr.program, value._expr.shape)
        version = value._version
        mode = set_mode(OFF)
        try:
            self.data = pack_hook(value)
        finally:
            set_mode(mode)
        if value._version != version:
            raise RuntimeError(PACK_WROTE)

    def unpack(self, saved_for: Node) -> Tensor:
        """The tensor, with the gradient it was saved with; for kernels of the type it had."""
        value = self.unpack_hook(self.data)
        if not isinstance(value, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(value)}"
            )
        if saved_for.reads_arrays:
            value = self._as_saved(value, saved_for)
        if self.edge is None and not value.requires_grad:
            return value
        value = value.detach() if value.requires_grad else value.alias()
        if self.edge is not None:
            node, output = self.edge
            value._attach(saved_for if node is None else node, output)
        return value

    def _as_saved(self, value: Tensor, saved_for: Node) -> Tensor:
        """The tensor as kernels take it, which do not look at it again."""
        was, came = self.like, value._expr.program
        if value._expr.shape != was.shape or came.device is not was.device:
            raise RuntimeError(
                f"{saved_for.name()} saved a tensor of shape {list(was.shape)} on {was.device}, "
                f"and the unpack_hook returned one of shape {list(value.shape)} on {came.device}; "
                "return one of that shape, there"
            )
        return value if came.dtype is was.dtype else value.detach().to(was.dtype)


def pack(tensor: Tensor, hooks: tuple[Any, Any]) -> Packed:
    """Give an operand to hooks instead of keeping it."""
    return Packed(tensor, edge_of(tensor._expr) if tensor.requires_grad else None, hooks)


def pack_output(result: Tensor, output: int, hooks: tuple[Any, Any]) -> Packed:
    """Give a result to hooks, for the node it comes from."""
    return Packed(result, (None, output), hooks)
