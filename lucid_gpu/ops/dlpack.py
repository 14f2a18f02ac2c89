"""Memory shared with other libraries: DLPack, the CUDA array interface, PyTorch.

The protocols are those of the array API standard 2024.12
(https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.array.__dlpack__.html)
and of Numba's ``__cuda_array_interface__``, version 3.
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import backend, backend_of_array, dlpack, resolve
from lucid_gpu.ops.borrowed import from_array_shared
from lucid_gpu.tensor import Tensor


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of another library's, by the DLPack protocol.

    Parameters
    ----------
    ext_tensor : object with ``__dlpack__``, or capsule
        An array of NumPy, CuPy, PyTorch, JAX ... On a GPU the current stream waits for the one its
        values are computed on.
    device : device or str, optional
        The device of the result; by default that of ``ext_tensor``.
    copy : bool, optional
        True copies, False refuses to; None copies only from one device to another.

    Raises
    ------
    BufferError
        If the other library does not share its memory, as PyTorch for tensors that require grad.
    TypeError
        For element types that no tensor has.
    ValueError
        If ``copy`` is False and a copy is needed.
    """
    if isinstance(ext_tensor, Tensor):
        _refuse_to_export(ext_tensor)
        shared = ext_tensor.detach()
    else:
        shared = _shared(ext_tensor, False if copy is False else None)
    target = shared.device if device is None else resolve(device)
    if target != shared.device:
        if copy is False:
            raise ValueError(
                f"cannot move DLPack tensor from device {shared.device} to {target} without "
                "copying. Set copy=None or copy=True."
            )
        return shared.to(target)
    return shared.clone() if copy else shared


def _shared(source: Any, copy: bool | None) -> Tensor:
    if backend_of_array(source) is not None:
        return from_array_shared(source)
    producer = dlpack.Exporter(source, copy)
    kind, index = producer.__dlpack_device__()
    if kind in (dlpack.CPU, dlpack.CUDA_HOST):
        where = resolve("cpu")
    elif kind in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        where = resolve(f"cuda:{index}")
    else:
        raise TypeError(
            f"from_dlpack(): expected memory of the CPU or of an NVIDIA GPU, got DLPack's device "
            f"type {kind}; copy it to the CPU first"
        )
    return from_array_shared(dlpack.array_of(producer, backend(where).xp), producer.read_only)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the tensor's memory and shape, for a library that takes no tensors."""
    return tensor.__dlpack__()


def __dlpack__(
    self: Tensor,
    *,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule that shares the tensor's memory; it is computed first where it is pending.

    Parameters
    ----------
    stream : int, optional
        On a GPU the consumer's stream, which is made to wait for the current one: 1 is the legacy
        default stream (so is None), 2 the per-thread one, -1 asks for no wait.
    max_version : (int, int), optional
        The newest version of DLPack that the consumer reads. From (1, 0) on the capsule says
        whether the memory is read-only.
    dl_device : (int, int), optional
        Where the memory is wanted: here, or on the CPU, (1, 0).
    copy : bool, optional
        True copies, False refuses to; None does what is needed.

    Raises
    ------
    BufferError
        For tensors that require grad, that are sparse or have negative strides; for another GPU.
    ValueError
        If ``copy`` is False and a copy is needed.
    """
    _refuse_to_export(self)
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    here = self.__dlpack_device__()
    wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if self.device.type == "cpu" and stream not in (None, -1):
        raise AssertionError(f"stream should be None on cpu, got {stream}.")
    if wanted == here and not copy:
        array = self._hand_out()
    elif wanted == here:
        array = self.detach().clone().array
    elif wanted == (dlpack.CPU, 0):
        if copy is False:
            raise ValueError(f"cannot move memory from {self.device} to cpu without copying")
        array, stream = self.cpu().array, None
    else:
        raise BufferError(
            f"a tensor on {self.device}, DLPack's device {here}, is exported there or to the CPU, "
            f"(1, 0), not to {wanted}; move it with .to() first"
        )
    return _capsule(self, array, stream, max_version, bool(copy) or wanted != here)


def _capsule(tensor: Tensor, array: Any, stream: Any, version: Any, copied: bool) -> Any:
    if array.size and min(array.strides, default=0) < 0:
        raise BufferError(
            f"Can't export tensors with negative strides, got {tuple(array.strides)} bytes; use "
            "tensor.contiguous()"
        )
    options = {} if version is None else {"max_version": tuple(version)}
    if isinstance(array, backend(resolve("cpu")).xp.ndarray):
        return dlpack.capsule_of(array, copied, **options)
    with array.device:  # whose current stream is waited for
        return dlpack.capsule_of(array, copied, stream=stream, **options)


def _refuse_to_export(tensor: Tensor) -> None:
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor._is_sparse:
        raise BufferError(
            "Can't export tensors with layout other than lucid_gpu.strided; use .to_dense()"
        )
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set; use .resolve_conj()")
    if tensor.is_neg():
        raise BufferError("Can't export tensors with the negative bit set; use .resolve_neg()")


def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    """DLPack's numbers of the device: (1, 0) is the CPU, (2, n) a GPU."""
    if self.device.type == "cpu":
        return dlpack.CPU, 0
    return dlpack.CUDA, self.device.index or 0


class _RequiresGrad(AttributeError, RuntimeError):
    """PyTorch's RuntimeError, by which `hasattr`, which CuPy asks, says False."""


def cuda_array_interface(tensor: Tensor) -> dict[str, Any]:
    """What ``tensor.__cuda_array_interface__`` is; see there."""
    if tensor.device.type != "cuda":
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {tensor.type()} If CUDA "
            "data is required use tensor.cuda() to copy tensor to device memory."
        )
    if tensor._is_sparse:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on sparse type: {tensor.type()} Use "
            "Tensor.to_dense() to convert to a dense tensor first."
        )
    if tensor.requires_grad:
        raise _RequiresGrad(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients "
            "aren't required, use var.detach() to get Variable that doesn't require grad."
        )
    array = tensor._hand_out(forever=True)  # who reads it holds the tensor, not the array
    with array.device:  # whose current stream is told
        interface = array.__cuda_array_interface__
    read_only = bool(tensor._memory().read_only)
    return {
        **interface,
        "data": (interface["data"][0], read_only),
        "typestr": array.dtype.str,
        "version": 3,
    }


def to_torch(tensor: Tensor) -> Any:
    """A ``torch.Tensor`` of the same shape that shares the memory of a tensor.

    Raises
    ------
    BufferError
        For tensors that require grad: gradients do not pass from one library to the other.
    """
    import torch

    if tensor.requires_grad:
        raise BufferError(
            "to_torch(): this tensor requires grad, and gradients do not pass to PyTorch: write "
            "to_torch(tensor.detach())"
        )
    return torch.from_dlpack(tensor)


def from_torch(tensor: Any) -> Tensor:
    """A tensor of the same shape that shares the memory of a ``torch.Tensor``.

    Raises
    ------
    BufferError
        For tensors that require grad: gradients do not pass from one library to the other.
    TypeError
        For anything else.
    """
    if type(tensor).__module__.split(".")[0] != "torch" and not hasattr(tensor, "requires_grad"):
        raise TypeError(
            f"from_torch(): expected a torch.Tensor, got {type(tensor).__name__}; as_tensor takes "
            "arrays of other libraries"
        )
    if tensor.requires_grad:
        raise BufferError(
            "from_torch(): this tensor requires grad, and gradients do not pass from PyTorch: "
            "write from_torch(tensor.detach())"
        )
    if not isinstance(tensor, Tensor):
        tensor = tensor.resolve_conj().resolve_neg()
    return from_dlpack(tensor)


METHODS = (__dlpack__, __dlpack_device__)
FUNCTIONS = (from_dlpack, to_dlpack, to_torch, from_torch)
__all__ = ["cuda_array_interface", "from_dlpack", "from_torch", "to_dlpack", "to_torch"]
