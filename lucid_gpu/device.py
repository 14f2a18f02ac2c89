"""Device names a user says: ``"cpu"``, ``"cuda"``, ``"cuda:1"``."""

from __future__ import annotations

import numbers
from typing import Any

__all__ = ["device", "set_default_device"]

_TYPES = ("cpu", "cuda", "meta")  # tensors of the last have no elements
_interned: dict[tuple[str, int | None], device] = {}


class device:
    """Where a tensor's bytes live. There is one object for each device.

    Parameters
    ----------
    type : str or device
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; on ``"meta"`` tensors have no elements.
    index : int, optional
        Which GPU.

    Raises
    ------
    RuntimeError
        For any other name, and a negative index.
    TypeError
        For an index that is not a whole number.
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __new__(cls, type: Any = "cpu", index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        if isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        name, colon, number = str(type).partition(":")
        if number and index is not None:
            raise RuntimeError(f"device string {type!r} already has an index; got index={index}")
        if name in _TYPES and colon and number != str(_whole_number(number)):
            raise RuntimeError(f"Invalid device string: {type!r}")
        if name not in _TYPES:
            raise RuntimeError(
                f"Expected one of cpu, cuda device type at start of device string: {type!r}"
            )
        if number:
            index = int(number)
        key = (name, index)
        instance = _interned.get(key)
        if instance is None:
            if index is not None:
                _check_index(index)
            instance = _interned[key] = object.__new__(cls)
            instance.type, instance.index = name, index
        return instance

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index)

    def __enter__(self) -> device:
        """Make it the default device until the end of the block."""
        default_devices.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        default_devices.pop()


def _whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _check_index(index: Any) -> None:
    if not isinstance(index, numbers.Integral):
        kind = type(index).__name__
        raise TypeError(f"device(): argument 'index' (position 2) must be int, not {kind}")
    if index < 0:
        raise RuntimeError(f"Device index must not be negative, got {index}")


CPU = device("cpu")
default_devices = [CPU]  # the last one counts; `lucid_gpu.devices.resolve` finds the GPU's number


def set_default_device(device: Any) -> None:
    """Set the device of new tensors for which no device is passed; None is the CPU."""
    default_devices[-1] = _named(device)


def _named(value: Any) -> device:
    return CPU if value is None else device(value)
