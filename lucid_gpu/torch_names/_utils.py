"""`torch._utils`: lists of tensors as one flat tensor and back, tensors from their parts."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu import (
    Tensor,
    cat,
    cuda,
    device,
    dtype,
    empty,
    empty_strided,
    from_numpy,
    nn,
    sparse_coo,
    sparse_coo_tensor,
    sparse_csr,
    sparse_csr_tensor,
)
from lucid_gpu import device as _device
from lucid_gpu.compat.refused import refused
from lucid_gpu.compiler import is_compiling

__all__ = [
    "ExceptionWrapper",
    "KeyErrorMessage",
    "_element_size",
    "_flatten_dense_tensors",
    "_flatten_sparse_tensors",
    "_get_all_device_indices",
    "_get_available_device_type",
    "_get_current_device_index",
    "_get_device_index",
    "_get_device_module",
    "_import_dotted_name",
    "_rebuild_device_tensor_from_cpu_tensor",
    "_rebuild_device_tensor_from_numpy",
    "_rebuild_meta_tensor_no_storage",
    "_rebuild_nested_tensor",
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_qtensor",
    "_rebuild_sparse_tensor",
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
    "_rebuild_wrapper_subclass",
    "_reorder_tensors_as",
    "_take_tensors",
    "_unflatten_dense_tensors",
    "_unflatten_sparse_tensors",
    "classproperty",
    "get_current_device_index",
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


def _get_current_device_index() -> int:
    """The number of the current GPU; -1 where there is none."""
    return cuda.current_device() if cuda.is_available() else -1


get_current_device_index = _get_current_device_index


def _flatten_sparse_tensors(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """All indices in a row, and all values."""
    return (
        _flatten_dense_tensors([t._indices() for t in tensors]),
        _flatten_dense_tensors([t._values() for t in tensors]),
    )


def _unflatten_sparse_tensors(
    flat: tuple[Tensor, Tensor], tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The rows, cut into sparse tensors of these shapes."""
    indices = _unflatten_dense_tensors(flat[0], [t._indices() for t in tensors])
    values = _unflatten_dense_tensors(flat[1], [t._values() for t in tensors])
    rows = zip(indices, values, tensors, strict=True)
    return tuple([sparse_coo_tensor(i, v, tuple(t.shape)) for i, v, t in rows])


def _import_dotted_name(name: str) -> Any:
    """The object of a dotted name, whose first part is a module."""
    first, *rest = name.split(".")
    return functools.reduce(getattr, rest, __import__(first))


class KeyErrorMessage(str):
    """A text that errors print with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class classproperty:
    """A property of a class.

    Parameters
    ----------
    fget : callable
        From the class.
    """

    def __init__(self, fget: Any) -> None:
        self.fget = fget.__func__ if isinstance(fget, (classmethod, staticmethod)) else fget

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.fget(type(instance) if owner is None else owner)


# --- tensors from their parts, as pickles name them -----------------------------------------------


def _rebuild_tensor(
    storage: Any, storage_offset: int, size: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """The tensor that lies in a typed storage with an offset, sizes and strides."""
    return _rebuild_tensor_v2(storage, storage_offset, size, stride, False, None)


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    """The same, which may require grad and be a conjugate or a negative; hooks are left out."""
    return _of_parts(storage, storage_offset, size, stride, requires_grad, metadata, None)


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    dtype: dtype,
    metadata: Any = None,
) -> Tensor:
    """The same, of a type that is not the storage's."""
    return _of_parts(storage, storage_offset, size, stride, requires_grad, metadata, dtype)


def _of_parts(
    storage: Any, offset: int, size: Any, stride: Any, grad: bool, metadata: Any, kind: Any
) -> Tensor:
    memory = storage.untyped() if hasattr(storage, "untyped") else storage
    made = empty(0, dtype=kind or storage.dtype, device=storage.device)
    made = made.set_(memory, offset, tuple(size), tuple(stride))
    marks = metadata or {}
    made = made.conj() if marks.get("conj") else made
    made = made._neg_view() if marks.get("neg") else made
    return made.requires_grad_() if grad else made


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> nn.Parameter:
    """A parameter of a tensor; hooks are left out."""
    return nn.Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any
) -> nn.Parameter:
    """The same, with attributes."""
    made = _rebuild_parameter(data, requires_grad, backward_hooks)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in {**(attributes or {}), **(slots or {})}.items():
        setattr(made, name, value)
    return made


def _rebuild_sparse_tensor(layout: Any, data: tuple[Any, ...]) -> Tensor:
    """A sparse tensor of its layout and of indices, values, size and whether it is coalesced.

    Of rows, columns, values and size for ``sparse_csr``; NotImplementedError for other layouts.
    """
    if layout is sparse_csr:
        return sparse_csr_tensor(*data)
    if layout is not sparse_coo:
        raise NotImplementedError(f"rebuilding sparse tensor for layout {layout}")
    indices, values, size, *coalesced = data
    return sparse_coo_tensor(
        indices, values, size, is_coalesced=coalesced[0] if coalesced else None
    )


def _rebuild_meta_tensor_no_storage(
    dtype: dtype, size: Sequence[int], stride: Sequence[int], requires_grad: bool
) -> Tensor:
    """A tensor on the device meta."""
    made = empty_strided(size, stride, dtype=dtype, device="meta")
    return made.requires_grad_() if requires_grad else made


def _rebuild_device_tensor_from_numpy(
    data: Any, dtype: dtype, device: Any, requires_grad: bool
) -> Tensor:
    """A tensor of a NumPy array."""
    return _rebuild_device_tensor_from_cpu_tensor(from_numpy(data), dtype, device, requires_grad)


def _rebuild_device_tensor_from_cpu_tensor(
    data: Tensor, dtype: dtype, device: Any, requires_grad: bool
) -> Tensor:
    """A tensor of another type and device."""
    made = data.to(device=device, dtype=dtype)
    return made.requires_grad_() if requires_grad else made


_rebuild_qtensor = refused("_utils._rebuild_qtensor", "write t.dequantize() in PyTorch")
_rebuild_nested_tensor = refused("_utils._rebuild_nested_tensor", "write t.unbind() in PyTorch")
_rebuild_wrapper_subclass = refused(
    "_utils._rebuild_wrapper_subclass", "write a subclass of Tensor that holds its elements"
)
