"""`DataParallel` of one device: what scripts for many GPUs wrap their model in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.device import device as Device
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parallel.parallel_apply import parallel_apply
from lucid_gpu.nn.parallel.replicate import replicate
from lucid_gpu.nn.parallel.scatter_gather import gather, scatter_kwargs
from lucid_gpu.tensor import Tensor

__all__ = ["DataParallel", "data_parallel"]


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


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[int | str | Device] | None = None,
    output_device: int | str | Device | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """What a module gives for a batch that is cut up over devices.

    Parameters
    ----------
    module : Module
    inputs : tuple or object
        Arguments, whose tensors are cut along ``dim``.
    device_ids : sequence of int, str or device, optional
        By default the first GPU; without one the module is called as it is.
    output_device : int, str or device, optional
        Where the results go, by default to the first device.
    dim : int
    module_kwargs : dict, optional
    """
    arguments = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    if device_ids is None:
        device_ids = [0] if problem() is None else []
    if not device_ids:
        return module(*arguments, **(module_kwargs or {}))
    rows, named = scatter_kwargs(arguments, module_kwargs, device_ids, dim)
    if not rows and not named:  # a module without inputs
        rows, named = ((),), ({},)
    used = device_ids[: len(rows)]
    if len(used) == 1:
        return module(*rows[0], **named[0])
    outputs = parallel_apply(replicate(module, used), rows, named, used)
    return gather(outputs, used[0] if output_device is None else output_device, dim)
