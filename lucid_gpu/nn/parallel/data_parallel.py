"""`DataParallel` of one device: what scripts for many GPUs wrap their model in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.device import device as Device
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["DataParallel"]


class DataParallel(Module):
    r"""Calls ``module``, on the GPU if there is one, with the arguments brought there.

    :math:`y = \mathrm{module}(x)`: one process trains on one GPU, so a batch is not cut up.

    Parameters
    ----------
    module : Module
        Parameters keep the names ``"module.*"``.
    device_ids : sequence of int or device, optional
        One GPU, by default the first.
    output_device, dim
        Accepted and ignored.

    Raises
    ------
    NotImplementedError
        For several devices.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[int | Device] | None = None,
        output_device: int | Device | None = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        ids = [0] if device_ids is None else list(device_ids)
        if len(ids) > 1:
            raise NotImplementedError(
                f"DataParallel: one process trains on one GPU, got device_ids={ids}; write "
                f"device_ids={ids[:1]}"
            )
        self.module, self.dim = module, dim
        self.device_ids = ids if problem() is None else []
        if self.device_ids:
            module.to(self._where())

    def _where(self) -> Device:
        (one,) = self.device_ids
        return Device("cuda", one) if isinstance(one, int) else Device(one)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """``module(*inputs, **kwargs)``."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        where = self._where()
        return self.module(*_brought(inputs, where), **_brought(kwargs, where))


def _brought(value: Any, where: Device) -> Any:
    """Tensors inside tuples, lists and dictionaries, on a device."""
    if isinstance(value, Tensor):
        return value.to(where)
    if type(value) in (list, tuple):
        return type(value)([_brought(v, where) for v in value])
    if type(value) is dict:
        return {key: _brought(v, where) for key, v in value.items()}
    return value
