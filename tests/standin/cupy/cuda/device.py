"""cupy.cuda.device: the current device, and what is known of each."""

from __future__ import annotations

from typing import Any

from cupy.cuda import runtime


class Device:
    def __init__(self, device: Any = None) -> None:
        if device is None:
            device = runtime.getDevice()
        self.id = int(device)
        self._before: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        self._before.append(runtime.getDevice())
        runtime.setDevice(self.id)
        return self

    def __exit__(self, *args: Any) -> None:
        runtime.setDevice(self._before.pop())

    def use(self) -> Device:
        runtime.setDevice(self.id)
        return self

    def synchronize(self) -> None:
        with self:
            runtime.deviceSynchronize()

    @property
    def compute_capability(self) -> str:
        return "90"

    @property
    def mem_info(self) -> tuple[int, int]:
        with self:
            return runtime.memGetInfo()

    @property
    def attributes(self) -> dict[str, int]:
        found = runtime.getDeviceProperties(self.id)
        return {
            "MultiProcessorCount": found["multiProcessorCount"],
            "WarpSize": found["warpSize"],
            "MaxThreadsPerBlock": found["maxThreadsPerBlock"],
            "MaxThreadsPerMultiProcessor": found["maxThreadsPerMultiProcessor"],
            "MaxSharedMemoryPerBlock": found["sharedMemPerBlock"],
            "MaxSharedMemoryPerBlockOptin": found["sharedMemPerBlockOptin"],
            "MaxSharedMemoryPerMultiprocessor": found["sharedMemPerMultiprocessor"],
            "MaxRegistersPerBlock": found["regsPerBlock"],
            "MaxRegistersPerMultiprocessor": found["regsPerMultiprocessor"],
            "ComputeCapabilityMajor": found["major"],
            "ComputeCapabilityMinor": found["minor"],
            "L2CacheSize": found["l2CacheSize"],
        }

    @property
    def cublas_handle(self) -> int:
        with self:
            return get_cublas_handle()

    @property
    def pci_bus_id(self) -> str:
        return f"0000:{self.id:02x}:00.0"


def get_device_id() -> int:
    return runtime.getDevice()


def get_compute_capability() -> str:
    return Device().compute_capability


def get_cublas_handle() -> int:
    from cupy_backends.cuda.libs import cublas

    return cublas._handle_of(runtime.getDevice())
