"""Where loaded tensors go: `map_location`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.ops.creation import empty
from lucid_gpu.serialization.errors import Damage
from lucid_gpu.tensor import Tensor

__all__ = ["RestoreLocation", "default_restore_location", "location_tag", "placing"]

# of a CPU tensor, and the name of where it was saved
RestoreLocation = Callable[[Tensor, str], Tensor]


def placing(map_location: Any) -> RestoreLocation:
    """The function that puts a tensor where it belongs.

    Parameters
    ----------
    map_location : None, str, device, dict or callable
        None restores tensors to where they were; a dict says for some places which others to take;
        a callable gets the tensor on the CPU and the name of its place, and returns it
        where it should be, or None for where it was.
    """
    if map_location is None:
        return _restored
    if isinstance(map_location, dict):
        return lambda t, location: _restored(t, str(map_location.get(location, location)))
    if callable(map_location):

        def asked(t: Tensor, location: str) -> Tensor:
            try:
                moved = map_location(t, location)
            except Exception as error:
                raise Damage(f"map_location raised {type(error).__name__}: {error}") from error
            return _restored(t, location) if moved is None else moved

        return asked
    target = str(device(map_location))
    return lambda t, location: _restored(t, target)


def _restored(t: Tensor, location: str) -> Tensor:
    try:
        where = device(location)
    except RuntimeError:
        raise Damage(
            f"it holds a tensor of the device {location!r}; load it with map_location='cpu'"
        ) from None
    if where.type == "cpu":
        return t
    from lucid_gpu.devices.cupy_backend import problem

    if where.type == "cuda" and (missing := problem()):
        raise Damage(
            f"Attempting to deserialize object on a CUDA device ({location}), but there is none to "
            f"use: {missing}. Load with map_location='cpu' to have the tensors on the CPU"
        )
    return t.to(where)


def location_tag(storage: Any) -> str:
    """The name of where a tensor or a storage is, as files have it: "cpu" or "cuda:0"."""
    return str(storage.device)


def default_restore_location(storage: Any, location: str) -> Any:
    """A tensor or a storage at the place of that name, as ``map_location`` is written with it.

    Raises
    ------
    RuntimeError
        For a place that is not here.
    """
    try:
        if isinstance(storage, Tensor):
            return _restored(storage, location)
        where = _restored(empty(0), location).device
    except Damage as error:
        raise RuntimeError(
            f"don't know how to restore data location of {type(storage).__name__} (tagged with "
            f"{location}): {error}"
        ) from None
    if where == storage.device:
        return storage
    return storage.cpu() if where.type == "cpu" else storage.cuda(where)
