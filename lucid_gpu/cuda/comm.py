"""`torch.cuda.comm`: tensors cut and joined over GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu.device import device as Device
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]

Devices = Sequence[int | str | Device]


def _on(where: int | str | Device | None) -> Device:
    """A device by its number; None and a negative number are the CPU and the current GPU."""
    if isinstance(where, int):
        return Device("cuda", where) if where >= 0 else Device("cpu")
    return Device("cuda" if where is None else where)


def broadcast(tensor: Tensor, devices: Devices) -> tuple[Tensor, ...]:
    """The tensor on each device."""
    return tuple([tensor.to(_on(d)) for d in devices])


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Devices, buffer_size: int = 10485760
) -> list[list[Tensor]]:
    """Each list of tensors on each device."""
    return [[t.to(_on(d)) for t in tensors] for d in devices]


def reduce_add(inputs: Sequence[Tensor], destination: int | str | Device | None = None) -> Tensor:
    """The sum of tensors on several devices, on one."""
    where = _on(destination)
    total = inputs[0].to(where)
    for t in inputs[1:]:
        total = total + t.to(where)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]],
    destination: int | str | Device | None = None,
    buffer_size: int = 10485760,
) -> tuple[Tensor, ...]:
    """The sums of lists of tensors, one list a device."""
    return tuple([reduce_add(row, destination) for row in zip(*inputs, strict=True)])


def scatter(
    tensor: Tensor, devices: Devices, chunk_sizes: Sequence[int] | None = None, dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts of a tensor, one a device; of these sizes, or equal ones."""
    parts = (
        tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(chunk_sizes, dim)
    )
    return tuple([part.to(_on(d)) for part, d in zip(parts, devices, strict=True)])


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: int | str | Device | None = None
) -> Tensor:
    """Tensors of several devices joined on one."""
    where = _on(destination)
    return cat([t.to(where) for t in tensors], dim)
