"""A plan's CUDA C on the host (``LUCID_EXECUTOR=host-cuda``): the code generator under test."""

from __future__ import annotations

from lucid_gpu.device import CPU
from lucid_gpu.fusion.launching import CudaExecutable
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.launch.launcher import launcher_of


class Executable(CudaExecutable):
    """A plan ready to run on NumPy arrays through its CUDA C."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, launcher_of(CPU))
