"""`torch.nn.parallel._functions`: copies between devices, with gradients, called by ``apply``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu import Tensor
from lucid_gpu.cuda import comm

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class Broadcast:
    """Tensors on each device."""

    @staticmethod
    def apply(target_gpus: Sequence[Any], *inputs: Tensor) -> tuple[Tensor, ...]:
        """All of the first device, then all of the second, and so on."""
        rows = [comm.broadcast(t, target_gpus) for t in inputs]
        return tuple([t for column in zip(*rows, strict=True) for t in column])


class ReduceAddCoalesced:
    """Sums of tensors over devices."""

    @staticmethod
    def apply(destination: Any, num_inputs: int, *grads: Tensor) -> tuple[Tensor, ...]:
        """Of rows of ``num_inputs`` tensors, one row a device: the sums, on one device."""
        rows = [grads[i : i + num_inputs] for i in range(0, len(grads), num_inputs)]
        return comm.reduce_add_coalesced(rows, destination)


class Gather:
    """Tensors of several devices, joined."""

    @staticmethod
    def apply(target_device: Any, dim: int, *inputs: Tensor) -> Tensor:
        """On one device, along a dimension; numbers become vectors."""
        rows = [t[None] if dim == 0 and not t.ndim else t for t in inputs]
        return comm.gather(rows, dim, target_device)


class Scatter:
    """A tensor cut into parts."""

    @staticmethod
    def apply(
        target_gpus: Sequence[Any], chunk_sizes: Sequence[int] | None, dim: int, input: Tensor
    ) -> tuple[Tensor, ...]:
        """One part a device."""
        return comm.scatter(input, target_gpus, chunk_sizes, dim)
