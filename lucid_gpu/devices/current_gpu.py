"""Making a GPU the current one: for a block of this package, and for each op on its tensors.

CuPy allocates and computes on the current GPU and refuses, or fails on, memory of another one. So
from the first use of a second GPU on, each op and each node of the backward pass makes the GPU of
its first tensor the current one until it returns (`tape.door`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.tape.door import DEVICE, Interpreter, Watch

__all__ = ["follow_tensors", "on_gpu"]

_HERE = contextlib.nullcontext()  # entering a device's own context costs more


def on_gpu(cuda: Any, index: int | None) -> contextlib.AbstractContextManager[Any]:
    """A block in which a GPU is the current one; None changes nothing.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``.
    index : int or None
    """
    if index is None or index == cuda.runtime.getDevice():
        return _HERE
    follow_tensors(cuda)
    there: contextlib.AbstractContextManager[Any] = cuda.Device(index)
    return there


@cache
def follow_tensors(cuda: Any) -> None:
    """Let every op make the GPU of its tensors the current one, from now on."""
    interpreter: Interpreter = partial(_on_its_gpu, cuda)
    Watch(DEVICE, lambda: interpreter).__enter__()


def _on_its_gpu(
    cuda: Any, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
) -> Any:
    asked = kwargs.get("device")
    wanted = device(asked) if isinstance(asked, (str, device)) else None
    if wanted is None or wanted.type == "cpu":
        index = _index_of((*args, *kwargs.values()))
    else:
        index = wanted.index
    if index is not None and index >= cuda.runtime.getDeviceCount():
        index = None  # the op says that there is no such GPU
    with on_gpu(cuda, index):
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
