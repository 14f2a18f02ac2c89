"""The backends that arrays belong to: NumPy's and CuPy's, behind one interface.

A `Backend` gives the array module (``xp``), memory, and the few functions NumPy and CuPy spell
differently. Everything above this folder asks a backend and never imports cupy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucid_gpu.device import device
    from lucid_gpu.devices.backend import Backend

_backends: dict[str, Backend] = {}
_of_types: dict[type, Backend] = {}  # NumPy's and CuPy's classes of arrays and numbers


def backend(where: device) -> Backend:
    """The backend of a device; CuPy is imported the first time a cuda device is asked for.

    Raises
    ------
    RuntimeError
        For cuda where CuPy or a GPU is missing; the message says which and what mends it.
    """
    found = _backends.get(where.type)
    if found is None:
        if where.type == "cpu":
            from lucid_gpu.devices.numpy_backend import NumpyBackend

            found = NumpyBackend()
        else:
            from lucid_gpu.devices.cupy_backend import CupyBackend

            found = CupyBackend()
        _backends[where.type] = found
    if where.index:  # of all GPUs but the first
        from lucid_gpu.devices.current_gpu import follow_tensors

        follow_tensors()
    return found


def xp_of(tensor: Any) -> Any:
    """The array module (numpy or cupy) of a tensor's device."""
    return backend(tensor.device).xp


def backend_of_array(array: Any) -> Backend | None:
    """The backend a NumPy or CuPy array belongs to, or None for anything else."""
    kind = type(array)
    found = _of_types.get(kind)
    if found is None:
        from lucid_gpu.device import CPU, device

        if kind.__module__ == "numpy":
            found = _of_types[kind] = backend(CPU)
        elif kind.__module__.split(".")[0] == "cupy":
            found = _of_types[kind] = backend(device("cuda"))
    return found
