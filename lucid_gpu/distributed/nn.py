"""`torch.distributed.nn`: collectives that gradients go through."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributed import collectives
from lucid_gpu.distributed.groups import get_rank, get_world_size
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.ops.creation import empty_like
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = ["all_gather", "all_reduce"]


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Combine a tensor of all ranks; its gradients are combined by the same op, as in PyTorch.

    Parameters
    ----------
    tensor : Tensor
        Of one shape and dtype on all ranks; it is not written.
    op : ReduceOp
    group : ProcessGroup, optional
        The default group by default.

    Returns
    -------
    Tensor
        The same on every rank.
    """
    combined = tensor.detach().clone()
    collectives.all_reduce(combined, op, group)

    def vjp(node: Any, gradient: Tensor) -> list[Tensor]:
        return [all_reduce(gradient, op, group)]

    result: Tensor = record("_AllReduceBackward", combined.array, [tensor], vjp)
    return result


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks; the gradient of each, summed over the ranks, goes to its rank.

    Parameters
    ----------
    tensor : Tensor
        Of one shape and dtype on all ranks.
    group : ProcessGroup, optional
        The default group by default.

    Returns
    -------
    tuple of Tensor
        One for each rank.
    """
    parts = [empty_like(tensor) for _ in range(get_world_size(group))]
    collectives.all_gather(parts, tensor.detach().contiguous(), group)

    def vjp(node: Any, *gradients: Tensor) -> list[Tensor]:
        return [all_reduce(stack(gradients), ReduceOp.SUM, group)[get_rank(group)]]

    arrays = tuple([part.array for part in parts])
    result: tuple[Tensor, ...] = record("_AllGatherBackward", arrays, [tensor], vjp)
    return result
