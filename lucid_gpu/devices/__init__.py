"""The backends that arrays belong to: NumPy's and CuPy's, behind one interface.

A `Backend` gives the array module (``xp``), memory, and the few functions NumPy and CuPy spell
differently. Everything above this folder asks a backend and never imports cupy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from lucid_gpu.device import CPU, default_devices, device

if TYPE_CHECKING:
    from lucid_gpu.devices.port import Backend

_backends: dict[str, Backend] = {}


class _Owners(dict[type, "Backend"]):
    """Backends by NumPy's and CuPy's classes of arrays and numbers."""

    def __missing__(self, kind: type) -> Backend:
        if kind.__module__ == "numpy":
            owner = self[kind] = backend(CPU)
        elif kind.__module__.partition(".")[0] == "cupy":
            owner = self[kind] = backend(device("cuda"))
        else:
            raise KeyError(kind)
        return owner


owners = _Owners()


def backend(where: device) -> Backend:
    """The backend of a device; CuPy is imported the first time a cuda device is asked for.

    Raises
    ------
    RuntimeError
        For cuda where CuPy or a GPU is missing; the message says which and what mends it.
    """
    if where.type in _backends:
        instance = _backends[where.type]
    else:
        if where.type == "cpu":
            from lucid_gpu.devices.numpy_backend import NumpyBackend

            instance = NumpyBackend()
        elif where.type == "meta":
            from lucid_gpu.devices.meta_backend import MetaArray, MetaBackend

            instance = owners[MetaArray] = MetaBackend()
        else:
            from lucid_gpu.devices.cupy_backend import CupyBackend

            instance = CupyBackend()
        _backends[where.type] = instance
    if where.index:  # of all GPUs but the first
        from lucid_gpu.devices.current_gpu import follow_tensors

        follow_tensors(instance.xp.cuda)
    return instance


def wrap(wrapper: Callable[[Backend], Backend]) -> None:
    """Put in the place of each backend in use what ``wrapper`` makes of it."""
    made = {one: wrapper(one) for one in _backends.values()}
    tables: tuple[dict[Any, Backend], ...] = _backends, owners
    for table in tables:
        for key, one in [*table.items()]:
            table[key] = made.get(one, one)


def on_gpu_of(where: device) -> AbstractContextManager[Any]:
    """A block in which the GPU of a device is the current one; other devices change nothing."""
    if where.type != "cuda":
        return nullcontext()
    from lucid_gpu.devices.current_gpu import on_gpu

    return on_gpu(backend(where).xp.cuda, where.index)


def _lose() -> None:
    """In a forked child: CUDA is gone, and who asks for its backend is told."""
    _backends.pop("cuda", None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose)


def is_initialized() -> bool:
    """Whether a GPU was used in this process."""
    return "cuda" in _backends


def resolve(value: Any, out: Any = None) -> device:
    """The device of a ``device=`` argument: ``cuda`` is the current GPU.

    None is the device of the tensor ``out``, and the default one where there is none.

    Raises
    ------
    RuntimeError
        For a GPU that this machine does not have; the message says what mends it.
    """
    if value is None:
        if out is not None:
            return cast("device", out.device)
        value = default_devices[-1]
        if value is CPU:
            return CPU
    wanted = device(value)
    if wanted.type == "cuda":
        there = backend(wanted)  # raises, with the mend, where there is no GPU
        if wanted.index is None:
            wanted = device("cuda", there.current_index())
        elif wanted.index:  # the first is there
            there.require_index(wanted.index)
    elif wanted.type == "meta" and wanted.index is not None:
        wanted = device("meta")
    return wanted


def get_default_device() -> device:
    """The device of new tensors for which no device is passed; initially the CPU."""
    return resolve(None)


def xp_of(tensor: Any) -> Any:
    """The array module (numpy or cupy) of a tensor's device."""
    return backend(tensor.device).xp


def backend_of_array(array: Any) -> Backend | None:
    """The backend a NumPy or CuPy array belongs to, or None for anything else."""
    try:
        return owners[type(array)]
    except KeyError:
        return None


def device_of(array: Any) -> device:
    """The device of a NumPy or CuPy array that a kernel is given."""
    owner = owners.get(type(array)) or backend_of_array(array)
    if owner is None:
        getattr(array, "shape", None)  # of a tensor whose storage was emptied: it says so itself
        raise TypeError(f"a kernel takes NumPy or CuPy arrays; got a {type(array).__name__}")
    return owner.device_of(array)
