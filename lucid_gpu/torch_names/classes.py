"""`torch.classes`: classes of libraries in C++, which cannot be loaded."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["load_library"]

loaded_libraries: frozenset[str] = frozenset()


def load_library(path: str) -> NoReturn:
    """Refuse with an OSError: libraries are built against PyTorch's C++."""
    raise OSError(f"lucid_gpu.classes.load_library: {path!r} needs PyTorch's C++ library")
