"""GPUs: which there are, their memory, waiting for them. Harmless to import without one.

Nothing here imports CuPy before it is known to be there; `is_available` answers False where CuPy,
the driver or a GPU is missing, and everything else raises a RuntimeError that says which.
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.device import device as _device
from lucid_gpu.devices import room as _room

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "memory_allocated",
    "memory_reserved",
    "set_device",
    "synchronize",
]


def _problem() -> str | None:
    from lucid_gpu.devices.cupy_room import problem

    return problem()


def _cuda() -> Any:
    """CuPy's `cupy.cuda`, where there is a GPU."""
    return _room(_device("cuda")).xp.cuda


def _index(device: Any) -> int:
    """A device argument as a number; None is the current device."""
    index = device if device is None or isinstance(device, int) else _device(device).index
    return current_device() if index is None else index


def is_available() -> bool:
    """Whether tensors can be put on a GPU."""
    return _problem() is None


def device_count() -> int:
    """How many GPUs there are; 0 where none can be used."""
    count: int = _cuda().runtime.getDeviceCount() if is_available() else 0
    return count


def current_device() -> int:
    """The number of the GPU that ``"cuda"`` means now."""
    return _room(_device("cuda")).current_index()


def set_device(device: Any) -> None:
    """Make a GPU the one that ``"cuda"`` means, for the calling thread."""
    _cuda().Device(_index(device)).use()


def get_device_properties(device: Any = None) -> dict[str, Any]:
    """What the driver says of a GPU: name, totalGlobalMem, multiProcessorCount, major, minor..."""
    properties: dict[str, Any] = _cuda().runtime.getDeviceProperties(_index(device))
    return properties


def get_device_name(device: Any = None) -> str:
    """A GPU's name, such as ``"NVIDIA H100"``."""
    name = get_device_properties(device)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def synchronize(device: Any = None) -> None:
    """Wait until everything started on a GPU is done."""
    cuda = _cuda()
    with cuda.Device(_index(device)):
        cuda.runtime.deviceSynchronize()


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors and arrays; 0 where there is no GPU."""
    return _pool_bytes("used_bytes", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the GPU, in use or kept for reuse; 0 where there is no GPU."""
    return _pool_bytes("total_bytes", device)


def _pool_bytes(which: str, device: Any) -> int:
    if not is_available():
        return 0
    xp = _room(_device("cuda")).xp
    with xp.cuda.Device(_index(device)):
        count: int = getattr(xp.get_default_memory_pool(), which)()
    return count


def empty_cache() -> None:
    """Give memory kept for reuse back to the GPU; nothing happens where there is none."""
    if is_available():
        _room(_device("cuda")).xp.get_default_memory_pool().free_all_blocks()


def manual_seed(seed: int) -> None:
    """Seed the random numbers of the GPU: the same generator as the CPU's."""
    from lucid_gpu.ops import random

    random.manual_seed(seed)


manual_seed_all = manual_seed
