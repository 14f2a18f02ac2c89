"""NVRTC for generated kernels; see `tests.kernels.compiling`."""

from __future__ import annotations

from lucid_gpu.launch.nvrtc import GENERATED
from tests.kernels.compiling import architectures, ptx, resources

__all__ = ["architectures", "compiled"]


def compiled(source: str, architecture: int, as_ptx: bool = False) -> str:
    """Compile as a program does; the log must be clean. Returns PTX where asked to."""
    if as_ptx:
        return ptx(source, architecture, GENERATED)
    resources(source, architecture, GENERATED)
    return ""
