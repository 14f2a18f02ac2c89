"""What NVIDIA's management library measures of a GPU: use, temperature, power, clocks."""

from __future__ import annotations

import importlib
from typing import Any

from lucid_gpu.cuda.gpus import cupy, index_of

__all__ = [
    "clock_rate",
    "device_memory_used",
    "list_gpu_processes",
    "memory_usage",
    "power_draw",
    "temperature",
    "utilization",
]


def _measured(function: str, device: Any, *arguments: Any) -> Any:
    """What a function of the library says of a GPU.

    RuntimeError where there is no GPU, ModuleNotFoundError without the library.
    """
    where = index_of(device)
    address = cupy().cuda.runtime.deviceGetPCIBusId(where)
    try:
        pynvml = importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pynvml does not seem to be installed or it can't be imported: pip install nvidia-ml-py"
        ) from error
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByPciBusId(address.encode())
    return getattr(pynvml, function)(handle, *arguments)


def utilization(device: Any = None) -> int:
    """The share of the last second, in percent, in which a kernel ran.

    ModuleNotFoundError without the package nvidia-ml-py.
    """
    return int(_measured("nvmlDeviceGetUtilizationRates", device).gpu)


def memory_usage(device: Any = None) -> int:
    """The share of the last second, in percent, in which memory was read or written.

    ModuleNotFoundError without the package nvidia-ml-py.
    """
    return int(_measured("nvmlDeviceGetUtilizationRates", device).memory)


def device_memory_used(device: Any = None) -> int:
    """Bytes in use on the GPU, by all processes.

    ModuleNotFoundError without the package nvidia-ml-py.
    """
    return int(_measured("nvmlDeviceGetMemoryInfo", device).used)


def temperature(device: Any = None) -> int:
    """Degrees Celsius.

    ModuleNotFoundError without the package nvidia-ml-py.
    """
    return int(_measured("nvmlDeviceGetTemperature", device, 0))


def power_draw(device: Any = None) -> int:
    """Milliwatts.

    ModuleNotFoundError without the package nvidia-ml-py.
    """
    return int(_measured("nvmlDeviceGetPowerUsage", device))


def clock_rate(device: Any = None) -> int:
    """Megahertz of the multiprocessors.

    ModuleNotFoundError without the package nvidia-ml-py.
    """
    return int(_measured("nvmlDeviceGetClockInfo", device, 1))


def list_gpu_processes(device: Any = None) -> str:
    """The processes on a GPU and the memory of each, as text.

    ModuleNotFoundError without the package nvidia-ml-py.
    """
    lines = [f"GPU:{index_of(device)}"]
    processes = _measured("nvmlDeviceGetComputeRunningProcesses", device)
    for one in processes:
        used = one.usedGpuMemory / (1024 * 1024)
        lines.append(f"process {one.pid:>10d} uses {used:>12.3f} MB GPU memory")
    return "\n".join(lines if processes else [*lines, "no processes are running"])
