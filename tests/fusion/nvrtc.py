"""NVRTC for generated kernels; see `tests.kernels.compiling`."""

from __future__ import annotations

from tests.kernels.compiling import architectures, ptx, resources

__all__ = ["architectures", "compiled"]


def compiled(source: str, architecture: int, as_ptx: bool = False) -> str:
    """Compile as `cupy.RawKernel` does; the log must be clean. Returns PTX where asked to."""
    if as_ptx:
        return ptx(source, architecture)
    resources(source, architecture)
    return ""
