"""`torch._utils`: lists of tensors as one flat tensor and back."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu import Tensor, cat, cuda, device, dtype
from lucid_gpu import device as _device
from lucid_gpu.compiler import is_compiling

__all__ = [
    "ExceptionWrapper",
    "_element_size",
    "_flatten_dense_tensors",
    "_get_all_device_indices",
    "_get_available_device_type",
    "_get_device_index",
    "_get_device_module",
    "_reorder_tensors_as",
    "_take_tensors",
    "_unflatten_dense_tensors",
    "get_device_module",
    "is_compiling",
    "typename",
]


def _get_available_device_type() -> str | None:
    """ "cuda" where there is a GPU, else None."""
    return "cuda" if cuda.is_available() else None


def typename(obj: Any) -> str:
    """The name of an object's type, of a tensor with the type of its elements, or its own."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") or hasattr(obj, "__name__") else type(obj)
    name = getattr(named, "__qualname__", None) or named.__name__
    module = getattr(named, "__module__", None)
    return name if module in (None, "", "builtins") else f"{module}.{name}"


def get_device_module(device: Any = None) -> Any:
    """The module of a device, such as `lucid_gpu.cuda`; by default of the accelerator.

    RuntimeError for a device that has none.
    """
    if device is None:
        return _get_device_module(_get_available_device_type() or "cpu")
    return _get_device_module(_device(device).type)


def _get_device_module(device_type: str) -> Any:
    """The module of a type of device, such as `lucid_gpu.cuda`."""
    if device_type not in ("cpu", "cuda"):
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as "
            f"'torch.{device_type}'."
        )
    return importlib.import_module(f"lucid_gpu.{device_type}")


class ExceptionWrapper:
    """An error of another thread or process, for `reraise` in this one.

    Parameters
    ----------
    exc_info : tuple, optional
        What `sys.exc_info` gave; by default, gives now.
    where : str
        Said in the message, such as "in replica 0".
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        exc_info = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: type[BaseException] = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self) -> None:
        """Raise the error, of its own type where that takes a message."""
        from lucid_gpu.utils.data.worker import Failure

        name = self.exc_type.__name__
        text = f"Caught {name} {self.where}.\nOriginal {self.exc_msg}"
        raise Failure(self.exc_type, text).error()


def _element_size(dtype: dtype) -> int:
    """Bytes of an element of a type."""
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in a row."""
    return cat([t.reshape(-1) for t in tensors]) if len(tensors) > 1 else tensors[0].reshape(-1)


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The row, cut into tensors of these shapes; they are views of it."""
    rows = flat.split([t.numel() for t in tensors])
    return tuple([row.view(t.shape) for row, t in zip(rows, tensors)])


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """The tensors, grouped by type, up to so many bytes a group."""
    groups: dict[str, list[Tensor]] = {}
    for t in tensors:
        group = groups.setdefault(t.type(), [])
        held = sum(o.numel() * o.element_size() for o in group)
        if group and held + t.numel() * t.element_size() > size_limit:
            yield group
            group = groups[t.type()] = []
        group.append(t)
    yield from [group for group in groups.values() if group]


def _reorder_tensors_as(
    tensors: Sequence[Tensor], ordered_tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The tensors, in the order in which the others have their types."""
    rows: dict[str, list[Tensor]] = {}
    for t in tensors:
        rows.setdefault(t.type(), []).append(t)
    ways = {kind: iter(row) for kind, row in rows.items()}
    return tuple([next(ways[t.type()]) for t in ordered_tensors])


def _get_device_index(
    device_: int | str | device | None, optional: bool = False, allow_cpu: bool = False
) -> int:
    """The number of a GPU; -1 for the CPU where that is allowed.

    ValueError for what is no GPU.
    """
    if isinstance(device_, int):
        return device_
    if device_ is None and optional:
        from lucid_gpu.cuda import current_device

        return current_device()
    asked = device(device_) if isinstance(device_, str) else device_
    if asked is None or asked.type != "cuda":
        if asked is not None and allow_cpu and asked.type == "cpu":
            return -1
        raise ValueError(f"Expected a cuda device, but got: {device_}")
    return asked.index or 0


def _get_all_device_indices() -> list[int]:
    """The numbers of all GPUs."""
    from lucid_gpu.cuda import device_count

    return list(range(device_count()))
