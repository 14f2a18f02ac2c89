"""Moving tensors between devices, and sharing memory with NumPy and CuPy."""

from __future__ import annotations

from typing import Any

from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, cuda_memory, resolve
from lucid_gpu.devices.copies import inverse
from lucid_gpu.ops.memory_formats import kept_order
from lucid_gpu.ops.registry import attach
from lucid_gpu.tape.door import op
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor


@op
def to_device(input: Tensor, where: Any, non_blocking: bool = False) -> Tensor:
    """The tensor on a device; itself if it is there. Dimensions lie in memory as they did."""
    target = resolve(where)
    if target == input.device:
        return input
    if input._wrapper is not None:
        moved: Tensor = input._wrapper.level.over(input, lambda part: to_device(part, target))
        return moved
    if input.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    move = _start if non_blocking and input.device == CPU else _move
    array = input.array
    order = None if input._is_sparse else kept_order(input)
    if order is None:
        return _recorded(move(array, input.device, target), input, target)
    moved_array = move(array.transpose(order), input.device, target)
    return _recorded(moved_array.transpose(inverse(order)), input, target)._keep_order()


batching(to_device)(on_value)


def _recorded(array: Any, input: Tensor, target: device) -> Tensor:
    from lucid_gpu.ops.record import OpNode
    from lucid_gpu.tensor import from_array

    result = from_array(array, input.dtype, target)
    if state.grad and input.requires_grad:
        node = OpNode((input,), _back, ())
        node.__dict__["home"] = input.device
        result._attach(node)
    return result


def _back(node: Any, g: Tensor) -> Any:
    return (to_device(g, node.home),)


def _move(array: Any, source: device, target: device) -> Any:
    if target.type == "meta":
        return backend(target).new(array.shape, array.dtype)
    host = backend(source).to_numpy(array)
    return backend(target).from_numpy(host, target)


def _start(array: Any, source: device, target: device) -> Any:
    """From page-locked memory the copy goes on while the host does."""
    from lucid_gpu.devices import pinned

    if pinned.is_pinned(array):
        return pinned.start_copy(array, target)
    return _move(array, source, target)


def cpu(self: Tensor) -> Tensor:
    """The elements in host memory."""
    return to_device(self, CPU)


def cuda(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """The elements on a GPU (the current one, or of a number or name)."""
    return to_device(self, "cuda" if device is None else device, non_blocking)


def cupy(self: Tensor) -> Any:
    """The buffer as a CuPy array that shares memory with this (GPU) tensor.

    TypeError for tensors on the CPU; RuntimeError for those that require grad.
    """
    if self.device.type != "cuda":
        raise TypeError(
            f"can't convert {self.device} device type tensor to cupy; use .cuda() first"
        )
    if self.requires_grad and state.grad:
        raise RuntimeError(
            "Can't call cupy() on Tensor that requires grad. Use tensor.detach().cupy() instead."
        )
    return self._hand_out()


def to_numpy(self: Tensor) -> Any:
    """``numpy.asarray(tensor)``, by the name under which plotting libraries ask for it."""
    return self.__array__()


def get_device(self: Tensor) -> int:
    """The number of the GPU the tensor is on; -1 on the CPU."""
    return -1 if self.device.index is None else self.device.index


def record_stream(self: Tensor, stream: Any) -> None:
    """Keep the memory, once it is freed, from being used again before a stream has passed.

    For tensors that another stream works on than the one that was current when they were made.

    Parameters
    ----------
    stream : cuda.Stream

    Raises
    ------
    NotImplementedError
        For tensors on the CPU.
    TypeError
        For anything but a stream.
    """
    if self.device.type != "cuda":
        raise NotImplementedError(
            f"record_stream() is for tensors on a GPU; this one is on {self.device}, where work is "
            "done when a call returns"
        )
    if not hasattr(stream, "_cupy"):
        raise TypeError(
            "record_stream(): argument 'stream' must be a lucid_gpu.cuda.Stream, not "
            f"{type(stream).__name__}"
        )
    cuda_memory.record_stream(self.array, stream._cupy)


def _cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """Numba's description of memory on a GPU, version 3: how CuPy, Numba and others share it.

    Its ``stream`` is the current one, on which readers have to wait for the values.

    Raises
    ------
    AttributeError
        For tensors that are not on a GPU, or sparse.
    RuntimeError
        For tensors that require grad.
    """
    from lucid_gpu.ops.dlpack import cuda_array_interface

    return cuda_array_interface(self)


attach(Tensor, cpu, cuda, cupy, to_numpy, get_device, record_stream)
attach(Tensor, __cuda_array_interface__=property(_cuda_array_interface))
