"""Ops run on the GPU of their tensors, also where another GPU is the current one.

Kernels of this package always do; functions of CuPy's run on the current GPU and refuse, or fail
on, memory of another one. So from the first use of a second GPU on, every function that computes
makes the GPU of its first array the current one until it returns (`ops.exchange`: under autocast
and vmap, which look at the same functions). Programs with one GPU never come here.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
import types
from typing import Any

from lucid_gpu.device import device as _device
from lucid_gpu.devices import cupy_backend
from lucid_gpu.ops.exchange import Place, changing, place_of
from lucid_gpu.tape.node import Node
from lucid_gpu.tensor import Tensor

__all__ = ["install"]

PACKAGES = ("lucid_gpu.ops", "lucid_gpu.kernels", "lucid_gpu.sparse")  # whose functions compute
LEFT_OUT = ("exchange", "registry", "arguments")  # of them: what calls, and computes nothing
_lock = threading.RLock()
_begun = _installed = False


class AtHome:
    """During a call the GPU of its first array is the current one."""

    height = -1  # under vmap's and autocast's

    def __init__(self, function: Any) -> None:
        self.place: Place = place_of(function)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        index = _index(args, kwargs)
        cuda = cupy_backend.import_cupy().cuda
        if index is None or index == cuda.runtime.getDevice():
            return self.place.body(*args, **kwargs)
        with cuda.Device(index):
            return self.place.body(*args, **kwargs)


def install() -> None:
    """Lay it over all that computes, once; others who come meanwhile wait until it is done."""
    global _begun, _installed
    if _installed:
        return
    with _lock:
        if _begun:  # what is imported here may ask for a GPU itself
            return
        _begun = True
        for name in PACKAGES:
            _import_all(importlib.import_module(name))
        modules = [m for n, m in sys.modules.items() if n.startswith(PACKAGES)]
        found = [f for m in modules for f in vars(m).values() if _computes(f)]
        found += [f for kind in _below(Node) for f in vars(kind).values() if _computes(f)]
        found += [f for f in vars(Tensor).values() if _computes(f)]
        with changing:
            for layer in [AtHome(function) for function in dict.fromkeys(found)]:
                layer.place.add(layer)
        _installed = True


def _import_all(package: types.ModuleType) -> None:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(found.name)


def _computes(function: Any) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    where = function.__globals__["__name__"]  # a wrapper has its function's name, not its place
    return where.startswith(PACKAGES) and where.rpartition(".")[2] not in LEFT_OUT


def _below(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [kind, *(each for child in below for each in _below(child))]


def _index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The GPU of the first argument that lies on one, sequences of arrays included."""
    asked = kwargs.get("device")
    if isinstance(asked, (str, _device)):
        return _device(asked).index
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)) and value:
            value = value[0]
        index = _of(value)
        if index is not None:
            return index
    return None


def _of(value: Any) -> int | None:
    if isinstance(value, Tensor):
        return value._expr.program.device.index
    if isinstance(value, _device):
        return value.index
    if type(value).__module__.startswith("cupy") and hasattr(value, "strides"):
        index: int = value.device.id
        return index
    return None
