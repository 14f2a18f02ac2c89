"""Settings of the GPU's libraries.

Examples
--------
>>> import lucid_gpu
>>> lucid_gpu.backends.cuda.matmul.allow_tf32 = True
>>> lucid_gpu.get_float32_matmul_precision()
'high'
>>> lucid_gpu.set_float32_matmul_precision("highest")
"""

from __future__ import annotations

from lucid_gpu.devices.precision import matmul as matmul

__all__ = ["is_built", "matmul"]


def is_built() -> bool:
    """Whether this package can use NVIDIA GPUs: it can, where CuPy and a driver are installed."""
    return True
