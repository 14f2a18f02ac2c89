"""Which GPUs there are, what they can do, which one is current, waiting for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucid_gpu import devices
from lucid_gpu.device import device as _device
from lucid_gpu.devices import backend, device_errors
from lucid_gpu.devices.cuda_errors import explained
from lucid_gpu.devices.cuda_memory import release_passed
from lucid_gpu.devices.current_gpu import on_gpu

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "set_device",
    "synchronize",
]


def cupy() -> Any:
    """CuPy, where there is a GPU.

    Raises
    ------
    RuntimeError
        If there is none; the message says what is missing and what mends it.
    """
    return backend(_device("cuda")).xp


def index_of(where: Any) -> int:
    """A device argument as a number; None and ``"cuda"`` are the current device.

    Raises
    ------
    ValueError
        For a device that is not a GPU.
    """
    if where is None:
        return current_device()
    if isinstance(where, device):
        return where.idx
    if isinstance(where, int) and not isinstance(where, bool):
        return current_device() if where < 0 else where
    wanted = _device(where)
    if wanted.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {wanted}")
    return current_device() if wanted.index is None else wanted.index


def is_available() -> bool:
    """Whether tensors can be put on a GPU."""
    from lucid_gpu.devices.cupy_backend import problem

    return problem() is None


def init() -> None:
    """Import CuPy and initialize the GPU now, instead of at its first use.

    Raises
    ------
    RuntimeError
        If there is no GPU.
    """
    cupy()


def is_initialized() -> bool:
    """Whether a GPU was used in this process."""
    return devices.is_initialized()


def _lazy_call(callable: Callable[[], object], **settings: bool) -> None:
    """Call now what PyTorch calls once a GPU is used; never where there is none."""
    if is_available():
        callable()


def device_count() -> int:
    """The number of GPUs; 0 if none can be used."""
    count: int = cupy().cuda.runtime.getDeviceCount() if is_available() else 0
    return count


def current_device() -> int:
    """The index of the GPU that ``"cuda"`` refers to."""
    return backend(_device("cuda")).current_index()


def set_device(device: Any) -> None:
    """Make a GPU the one that ``"cuda"`` means, for the calling thread; `device` is for a block.

    Parameters
    ----------
    device : device, str or int
        A negative number does nothing.

    Raises
    ------
    RuntimeError
        For a GPU that this machine does not have.
    """
    if isinstance(device, int) and device < 0:
        return
    cupy().cuda.Device(_checked(device)).use()


def _checked(device: Any) -> int:
    """The number of a device that exists."""
    index = index_of(device)
    backend(_device("cuda")).require_index(index)
    return index


class device:
    """A block in which ``"cuda"`` means a certain GPU.

    Parameters
    ----------
    device : device, str, int or None
        None and negative numbers change nothing.

    Examples
    --------
    ``with lucid_gpu.cuda.device(1): x = lucid_gpu.zeros(3, device="cuda")``
    """

    def __init__(self, device: Any) -> None:
        unchanged = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if unchanged else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exception: Any) -> None:
        if self.idx >= 0:
            set_device(self.prev_idx)


class device_of(device):
    """A block in which ``"cuda"`` means the GPU of a tensor; nothing changes for one on the CPU."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "cuda" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a GPU, under PyTorch's names.

    Attributes
    ----------
    name : str
    major, minor : int
        The compute capability.
    total_memory : int
        Bytes.
    multi_processor_count, warp_size, max_threads_per_multi_processor : int
    regs_per_multiprocessor : int
    shared_memory_per_block, shared_memory_per_multiprocessor : int
        Bytes.
    shared_memory_per_block_optin : int
        Bytes a block may have where a kernel asks for more.
    L2_cache_size : int
        Bytes.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int


_FIELDS = {
    "major": "major",
    "minor": "minor",
    "total_memory": "totalGlobalMem",
    "multi_processor_count": "multiProcessorCount",
    "warp_size": "warpSize",
    "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
    "regs_per_multiprocessor": "regsPerMultiprocessor",
    "shared_memory_per_block": "sharedMemPerBlock",
    "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
    "L2_cache_size": "l2CacheSize",
}


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The properties of a GPU.

    Raises
    ------
    AssertionError
        For an index without a GPU.
    """
    index, count = index_of(device), cupy().cuda.runtime.getDeviceCount()
    if index >= count:
        raise AssertionError(f"Invalid device id {index}: this machine has {count}")
    return _properties(index)


@functools.cache
def _properties(index: int) -> DeviceProperties:
    properties = cupy().cuda.runtime.getDeviceProperties(index)
    name = properties["name"]
    figures = {ours: int(properties[theirs]) for ours, theirs in _FIELDS.items()}
    return DeviceProperties(name.decode() if isinstance(name, bytes) else str(name), **figures)


def get_device_name(device: Any = None) -> str:
    """A GPU's name, such as ``"NVIDIA H100"``."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """A GPU's compute capability, such as ``(9, 0)``."""
    about = get_device_properties(device)
    return about.major, about.minor


def get_arch_list() -> list[str]:
    """The architectures that kernels are compiled for, such as "sm_90"; none without a GPU."""
    if not is_available():
        return []
    from lucid_gpu.launch import nvrtc

    return [f"sm_{number}" for number in sorted(nvrtc.library().getSupportedArchs())]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether kernels take bfloat16; without emulation, whether the GPU has instructions for it."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Whether the GPU multiplies matrices in TF32."""
    return is_available() and get_device_capability()[0] >= 8


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one GPU can read the memory of another.

    RuntimeError for a GPU that this machine does not have.
    """
    one, other = _checked(device), _checked(peer_device)
    return bool(cupy().cuda.runtime.deviceCanAccessPeer(one, other))


def synchronize(device: Any = None) -> None:
    """Wait until everything started on a GPU is done, on all its streams.

    A pending value has not been started: see `Event` about timing.

    Raises
    ------
    AcceleratorError
        If a kernel failed.
    RuntimeError
        For a GPU that this machine does not have.
    """
    from lucid_gpu.cuda import pending

    cuda = cupy().cuda
    with on_gpu(cuda, _checked(device)):
        pending.flush()
        try:
            cuda.runtime.deviceSynchronize()
        except cuda.runtime.CUDARuntimeError as error:
            raise explained(error, "cuda.synchronize()") from error
        release_passed()
    device_errors.check()
