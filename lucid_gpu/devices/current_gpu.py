"""Ops run on the GPU of their tensors, also where another GPU is the current one.

Kernels of this package always do; functions of CuPy's run on the current GPU and refuse, or fail
on, memory of another one. So from the first use of a second GPU on, each op and each node of the
backward pass makes the GPU of its first tensor the current one until it returns (`tape.door`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.device import device, resolve
from lucid_gpu.tape.door import DEVICE, Watch

__all__ = ["follow_tensors"]


@functools.cache
def follow_tensors() -> None:
    """Let every op make the GPU of its tensors the current one, from now on."""
    Watch(DEVICE, lambda: _on_its_gpu).__enter__()


def _on_its_gpu(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
) -> Any:
    from lucid_gpu.devices.cupy_backend import import_cupy

    asked = kwargs.get("device")
    index = resolve(asked).index if isinstance(asked, (str, device)) else None
    if index is None:
        index = _index_of((*args, *kwargs.values()))
    if index is None:
        return go_on(*args, **kwargs)
    cuda = import_cupy().cuda
    if index == cuda.runtime.getDevice():
        return go_on(*args, **kwargs)
    with cuda.Device(index):
        return go_on(*args, **kwargs)


def _index_of(values: Iterable[Any]) -> int | None:
    """The GPU of the first tensor, array or device on one, sequences included."""
    for value in values:
        if isinstance(value, (list, tuple)):
            index = _index_of(value)
        elif isinstance(value, device):
            index = value.index
        elif (expr := getattr(value, "_expr", None)) is not None:
            index = expr.program.device.index
        elif type(value).__module__.startswith("cupy") and hasattr(value, "strides"):
            index = value.device.id
        else:
            index = None
        if index is not None:
            return index
    return None
