"""Running CUDA C: generated kernels and hand-written ones go through one launcher.

A `Kernel` names a device function of `kernels/*.cu` with its parameters as C writes them. Calling
it compiles the instance, checks and packs the arguments and starts it where the arrays live: on a
GPU through CuPy, or as C++ on the host.
"""

from __future__ import annotations

import os
import warnings

from lucid_gpu.device import device
from lucid_gpu.launch.kernel import Kernel

__all__ = ["Executor", "Kernel", "runs_cuda_c"]


if os.environ.get("LUCID_EXECUTOR", "") not in ("", "host-cuda"):
    warnings.warn(
        f"LUCID_EXECUTOR={os.environ['LUCID_EXECUTOR']!r} is not known and changes nothing; there "
        "is LUCID_EXECUTOR=host-cuda",
        stacklevel=2,
    )


class Executor:
    """What runs kernels for CPU tensors: ``LUCID_EXECUTOR``, as it was at the import.

    Attributes
    ----------
    host_cuda : bool
        Whether CUDA C is compiled for the host and run there.
    """

    host_cuda = os.environ.get("LUCID_EXECUTOR") == "host-cuda"


def runs_cuda_c(where: device) -> bool:
    """Whether a family's CUDA C runs for arrays of a device, rather than its NumPy twin."""
    return where.type == "cuda" or (Executor.host_cuda and where.type == "cpu")
