"""`torch.distributed._functional_collectives`: collectives that return their result."""

from __future__ import annotations

from typing import Any

from lucid_gpu import cat, distributed
from lucid_gpu.autograd import Function
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.tensor import Tensor

__all__ = [
    "all_gather_tensor",
    "all_reduce",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "wait_tensor",
]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: nothing is under way."""
    return tensor


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """A tensor combined over all ranks.

    Parameters
    ----------
    reduceOp : str
        ``"sum"``, ``"avg"``, ``"max"`` and the like.
    group : ProcessGroup or None
    tag : str
        Taken as PyTorch takes it.
    """
    out = self.detach().clone()
    distributed.all_reduce(out, ReduceOp[reduceOp.upper()], group)
    return out


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, joined along a dimension."""
    parts = [self.new_empty(self.shape) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(parts, self.detach().contiguous(), group)
    return cat(parts, gather_dim)


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Any,
    input_split_sizes: Any,
    group: Any,
    tag: str = "",
) -> Tensor:
    """Each rank's parts of the first dimension, from all ranks."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    out = self.new_empty((rows, *self.shape[1:]))
    source = self.detach().contiguous()
    distributed.all_to_all_single(out, source, output_split_sizes, input_split_sizes, group)
    return out


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, received: Any, sent: Any, group: Any) -> Tensor:
        ctx.splits = received, sent, group
        return all_to_all_single(input, received, sent, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        received, sent, group = ctx.splits
        return all_to_all_single(grad, sent, received, group), None, None, None


def all_to_all_single_autograd(
    self: Tensor,
    output_split_sizes: Any,
    input_split_sizes: Any,
    group: Any,
    tag: str = "",
) -> Tensor:
    """`all_to_all_single` whose gradients travel back."""
    out: Tensor = _AllToAll.apply(self, output_split_sizes, input_split_sizes, group)
    return out
