"""What the namespace says of itself."""

from __future__ import annotations

from typing import Any

from lucid_gpu import cuda
from lucid_gpu import dtypes as dt
from lucid_gpu.array_api.types import isdtype
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import get_default_device

__all__ = ["__array_namespace_info__"]

# bfloat16 and float16 are no types of the standard; uint16, uint32 and uint64 are no tensor's
TYPES = (
    *(dt.bool, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8),
    *(dt.float32, dt.float64, dt.complex64, dt.complex128),
)


class __array_namespace_info__:
    """Devices, element types and abilities."""

    def capabilities(self) -> dict[str, Any]:
        """Masks select elements, shapes may depend on values, dimensions are at most 64."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> device:
        """Where tensors are made that are not told a device."""
        return get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, dt.dtype]:
        """The types of what is made without a type."""
        real = dt.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": dt.int64,
            "indexing": dt.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, dt.dtype]:
        """The element types by name, all or those of a kind."""
        return {d.name: d for d in TYPES if kind is None or isdtype(d, kind)}

    def devices(self) -> list[device]:
        """The CPU and all GPUs."""
        return [CPU, *[device("cuda", k) for k in range(cuda.device_count())]]
