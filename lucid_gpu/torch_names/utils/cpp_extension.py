"""`torch.utils.cpp_extension` for files that import it: building and loading refuse."""

from __future__ import annotations

import os
from typing import Any, NoReturn

__all__ = [
    "CUDA_HOME",
    "ROCM_HOME",
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "load",
    "load_inline",
]

CUDA_HOME = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
ROCM_HOME = None


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"lucid_gpu.utils.cpp_extension.{name}: extensions written against PyTorch's C++ cannot be "
        "built; write a CUDA kernel by lucid_gpu.cuda.kernel inside an autograd.Function"
    )


def load(*args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError."""
    _refuse("load")


def load_inline(*args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError."""
    _refuse("load_inline")


def include_paths(*args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError."""
    _refuse("include_paths")


def CppExtension(*args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError."""
    _refuse("CppExtension")


def CUDAExtension(*args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError."""
    _refuse("CUDAExtension")


class BuildExtension:
    """What a setup.py names; making one refuses."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        _refuse("BuildExtension")

    @classmethod
    def with_options(cls, **settings: Any) -> type[BuildExtension]:
        """The class itself."""
        return cls
