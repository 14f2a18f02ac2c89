"""The rooms arrays live in: NumPy's and CuPy's, behind one interface.

A `Room` gives the array module (``xp``), memory, and the few functions NumPy and CuPy spell
differently. Everything above this folder asks a room and never imports cupy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucid_gpu.device import device
    from lucid_gpu.devices.room import Room

_rooms: dict[str, Room] = {}


def room(where: device) -> Room:
    """The room of a device; CuPy is imported the first time a cuda device is asked for.

    Raises
    ------
    RuntimeError
        For cuda where CuPy or a GPU is missing; the message says which and what mends it.
    """
    found = _rooms.get(where.type)
    if found is None:
        if where.type == "cpu":
            from lucid_gpu.devices.numpy_room import NumpyRoom

            found = NumpyRoom()
        else:
            from lucid_gpu.devices.cupy_room import CupyRoom

            found = CupyRoom()
        _rooms[where.type] = found
    return found


def xp_of(tensor: Any) -> Any:
    """The array module (numpy or cupy) of a tensor's device."""
    return room(tensor.device).xp


def room_of_array(array: Any) -> Room | None:
    """The room a NumPy or CuPy array belongs to, or None for anything else."""
    from lucid_gpu.device import CPU, device

    if type(array).__module__ == "numpy":
        return room(CPU)
    if type(array).__module__.split(".")[0] == "cupy":
        return room(device("cuda"))
    return None
