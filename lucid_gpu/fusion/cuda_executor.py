"""A plan's CUDA C through CuPy, on the current stream of the plan's device."""

from __future__ import annotations

from lucid_gpu.fusion.launching import CudaExecutable
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.launch.launcher import launcher_of


class Executable(CudaExecutable):
    """A plan ready to run on CuPy arrays."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, launcher_of(plan.device))
