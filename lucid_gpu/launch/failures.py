"""A launch that failed: which kernel, on which arrays, how it was launched."""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu.devices.cuda_errors import (
    AcceleratorError,
    OutOfMemoryError,
    explained,
    telling,
)

_REFUSED = ("INVALID_VALUE", "OUT_OF_RESOURCES", "INVALID_CONFIGURATION", "NOT_SUPPORTED")


def failed(
    error: BaseException, name: str, grid: Sequence[int], block: Sequence[int], shared: int
) -> RuntimeError:
    """The error of a launch.

    A launch that is refused, or for which there is no memory, leaves everything as it was; what
    else a launch reports may come from a kernel before it.
    """
    text = str(error)
    how = f"grid {tuple(grid)}, block {tuple(block)}, {shared} bytes of dynamic shared memory"
    if "OUT_OF_MEMORY" in text:
        return telling(
            OutOfMemoryError,
            lambda work: (
                "CUDA out of memory. There is none left to launch "
                f"{kernel_and_work(name, work)} ({how}): {text}. Free tensors that are no longer "
                "needed, or call lucid_gpu.cuda.empty_cache()"
            ),
        )
    if any(word in text for word in _REFUSED):
        return telling(
            AcceleratorError,
            lambda work: (
                f"CUDA error: {kernel_and_work(name, work)} cannot be launched with {how}: {text}"
            ),
        )
    return explained(error, lambda work: kernel_and_work(name, work))


def kernel_and_work(name: str, work: str) -> str:
    """A kernel with its arrays or its shape, for a message."""
    if not work or work.startswith("the kernel"):
        return work or f"the kernel {name}"
    return f"the kernel {name} in {work}"
