"""cupy.cuda.runtime: devices, the calling thread's device and context, copies, waiting."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from cupy import _counts

_DEVICES = 2
_TOTAL_BYTES = 8 << 30  # what each device says it has

memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = (
    range(5)
)
streamLegacy, streamPerThread = 1, 2
eventDefault, eventBlockingSync, eventDisableTiming = 0, 1, 2


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        name, meaning = _ERRORS.get(status, ("cudaErrorUnknown", "unknown error"))
        super().__init__(f"{name}: {meaning}")

    def __reduce__(self) -> Any:
        return type(self), (self.status,)


_ERRORS = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    900: (
        "cudaErrorStreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
    ),
}


class _Thread(threading.local):
    device = 0

    def __init__(self) -> None:
        self.contexts: set[int] = set()  # cuLaunchKernel wants one; runtime calls make it


_thread = _Thread()


def _has_context() -> bool:
    return _thread.device in _thread.contexts


def _make_context() -> None:
    _thread.contexts.add(_thread.device)


def getDevice() -> int:
    return _thread.device


def setDevice(device: int) -> None:
    if not 0 <= device < _DEVICES:
        raise CUDARuntimeError(101)
    _thread.device = device


def getDeviceCount() -> int:
    return _DEVICES


def driverGetVersion() -> int:
    return 12090


def runtimeGetVersion() -> int:
    return 12090


def getDeviceProperties(device: int) -> dict[str, Any]:
    if not 0 <= device < _DEVICES:
        raise CUDARuntimeError(101)
    return {
        "name": b"stand-in on the host, no GPU",
        "totalGlobalMem": _TOTAL_BYTES,
        "sharedMemPerBlock": 48 << 10,
        "sharedMemPerBlockOptin": 227 << 10,
        "sharedMemPerMultiprocessor": 228 << 10,
        "regsPerBlock": 65536,
        "regsPerMultiprocessor": 65536,
        "warpSize": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsDim": (1024, 1024, 64),
        "maxGridSize": (2**31 - 1, 65535, 65535),
        "maxThreadsPerMultiProcessor": 2048,
        "clockRate": 0,
        "memoryClockRate": 0,
        "memoryBusWidth": 0,
        "l2CacheSize": 50 << 20,
        "major": 9,
        "minor": 0,
        "multiProcessorCount": 4,
        "unifiedAddressing": 1,
        "concurrentKernels": 1,
        "ECCEnabled": 0,
        "pciBusID": device,
        "pciDeviceID": 0,
        "pciDomainID": 0,
        "totalConstMem": 65536,
        "managedMemory": 1,
        "cooperativeLaunch": 1,
        "uuid": bytes(15) + bytes([device]),
    }


def memGetInfo() -> tuple[int, int]:
    from cupy.cuda import memory

    _make_context()
    return _TOTAL_BYTES - memory._taken_bytes(getDevice()), _TOTAL_BYTES


def deviceSynchronize() -> None:
    from cupy.cuda import stream

    _make_context()
    stream._forbid_in_capture()
    _counts.note("wait", "deviceSynchronize")
    stream._drain_device(getDevice())


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
    return 0


def free(ptr: int) -> None:
    """Only for the null pointer, by which a thread is given its context."""
    _make_context()
    if ptr:
        raise CUDARuntimeError(1)


def _move(dst: int, src: int, size: int) -> None:
    ctypes.memmove(dst, src, size)


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    from cupy.cuda import stream

    _make_context()
    if kind in (1, 2):
        _counts.note("copy" if kind == 1 else "fetch", "memcpy", size)
    _counts.note("wait", "memcpy")
    stream._submit(lambda: _move(dst, src, size), ptr=0)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    from cupy.cuda import stream as streams

    _make_context()
    if kind in (1, 2):
        _counts.note("copy" if kind == 1 else "fetch", "memcpyAsync", size)
    streams._submit(lambda: _move(dst, src, size), ptr=stream)


def memset(ptr: int, value: int, size: int) -> None:
    from cupy.cuda import stream

    _make_context()
    _counts.note("memset", "memset", size)
    stream._submit(lambda: ctypes.memset(ptr, value, size), ptr=0)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    from cupy.cuda import stream as streams

    _make_context()
    _counts.note("memset", "memsetAsync", size)
    streams._submit(lambda: ctypes.memset(ptr, value, size), ptr=stream)


def streamSynchronize(stream: int) -> None:
    from cupy.cuda import stream as streams

    _make_context()
    _counts.note("wait", "streamSynchronize")
    streams._drain(stream)
