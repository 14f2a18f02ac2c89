"""Capsules of device memory: NumPy's, with another device in them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy

from cupy import _core
from cupy._array import ndarray
from cupy.cuda import memory, runtime
from cupy.cuda.stream import Event, ExternalStream, get_current_stream

_python = ctypes.pythonapi
for _function in (_python.PyCapsule_IsValid, _python.PyCapsule_GetPointer):
    _function.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p


class _Held(numpy.ndarray):
    """Host memory that keeps the device array it is of."""

    holder: ndarray


def _device(capsule: Any) -> Any:
    """Where a capsule says its device: two integers."""
    for name, offset in ((b"dltensor", 8), (b"dltensor_versioned", 40)):
        if _python.PyCapsule_IsValid(capsule, name):
            address = _python.PyCapsule_GetPointer(capsule, name)
            return (ctypes.c_int32 * 2).from_address(address + offset)
    raise ValueError(
        "A DLPack tensor object cannot be consumed multiple times (or object was not a DLPack "
        f"capsule). Got: {capsule!r}"
    )


def export(array: ndarray, stream: Any, version: Any) -> Any:
    if array.dtype == _core.bfloat16:
        raise BufferError("dtype is not supported for dlpack export")
    if stream is None:
        stream = runtime.streamLegacy
    if not isinstance(stream, int) or stream < -1 or stream == 0:
        raise ValueError(
            "On CUDA, the valid stream for the DLPack protocol is -1, 1, 2, or any larger value, "
            f"but {stream} was provided"
        )
    current = get_current_stream()
    ptr = 0 if stream == runtime.streamLegacy else stream
    if stream != -1 and ptr != current.ptr:
        event = Event()
        event.record(current)
        ExternalStream(ptr).wait_event(event)
    host = array._a.view(_Held)
    host.holder = array
    capsule = host.__dlpack__(max_version=version)
    _device(capsule)[:] = array.__dlpack_device__()
    return capsule


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> ndarray:
    kind, index = array.__dlpack_device__()
    if kind == 1:
        raise TypeError(
            "CPU arrays cannot be directly imported to CuPy. Use "
            "`cupy.array(numpy.from_dlpack(input))` instead."
        )
    before = runtime.getDevice()
    runtime.setDevice(index)
    try:
        stream = get_current_stream().ptr or runtime.streamLegacy
        try:
            capsule = array.__dlpack__(stream=stream, max_version=(1, 0), copy=copy)
        except TypeError:
            if copy is not None:
                raise
            capsule = array.__dlpack__(stream=stream)
    finally:
        runtime.setDevice(before)
    _device(capsule)[:] = (1, 0)
    return _on(numpy.from_dlpack(_Capsule(capsule)), DLPackMemory, index)


def from_interface(obj: Any) -> ndarray:
    """An array on what ``__cuda_array_interface__`` tells, whose stream ours waits for."""
    told = dict(obj.__cuda_array_interface__)
    stream = told.pop("stream", None)
    if stream is not None:
        event = Event()
        event.record(ExternalStream(0 if stream == runtime.streamLegacy else stream))
        get_current_stream().wait_event(event)
    return _on(_Described(told, obj), memory.UnownedMemory, runtime.getDevice())


def _on(host: Any, kind: type[memory.UnownedMemory], index: int) -> ndarray:
    """An array on host memory that somebody else owns."""
    told = host.__array_interface__
    host = numpy.asarray(_Described({**told, "data": (told["data"][0], False)}, host))
    made = object.__new__(ndarray)
    made._mem = kind(told["data"][0], host.nbytes, host, index)
    made._a, made.base = host, None
    return made


class _Described:
    """Memory as NumPy is told of it, and who keeps it."""

    def __init__(self, told: Any, owner: Any) -> None:
        self.__array_interface__, self.owner = told, owner


class DLPackMemory(memory.UnownedMemory):
    """Memory of another library."""


class _Capsule:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule
