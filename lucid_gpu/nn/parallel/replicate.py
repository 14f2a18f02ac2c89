"""A module once for each device, with gradients that meet in its own parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from lucid_gpu.device import device as Device
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parallel.scatter_gather import _on
from lucid_gpu.tensor import Tensor

__all__ = ["replicate"]

M = TypeVar("M", bound=Module)


def replicate(network: M, devices: Sequence[int | str | Device], detach: bool = False) -> list[M]:
    """A copy of a module for each device: its tensors there, everything else shared.

    Parameters
    ----------
    network : Module
    devices : sequence of int, str or device
    detach : bool
        Cut the copies off the parameters: gradients do not reach them.

    Returns
    -------
    list of Module
        For forward passes: their ``parameters()`` are none, as in PyTorch, since the tensors are
        results of copies.
    """
    return [_replica(network, _on(where), detach, {}) for where in devices]


def _replica(module: Any, where: Device, detach: bool, made: dict[Any, Any]) -> Any:
    """A copy of a module, with a module that it holds twice copied once."""
    if module in made:
        return made[module]
    copy = made[module] = module._replicate_for_data_parallel()
    for name, child in module._modules.items():
        copy._modules[name] = None if child is None else _replica(child, where, detach, made)
    for name, p in module._parameters.items():
        copy._parameters.pop(name, None)
        object.__setattr__(copy, name, None if p is None else _moved(p, where, detach, made))
    for name, b in module._buffers.items():
        copy._buffers[name] = None if b is None else _moved(b, where, True, made)
    return copy


def _moved(t: Tensor, where: Device, detach: bool, made: dict[Any, Any]) -> Tensor:
    """A tensor on a device, as a result of the one there was; a shared one is moved once."""
    if t not in made:
        there = t.to(where)
        made[t] = there.detach() if detach else there.view_as(there) if there is t else there
    moved: Tensor = made[t]
    return moved
