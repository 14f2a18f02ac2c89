"""`torch.__config__`: what the package computes with, as text."""

from __future__ import annotations

import os
from importlib.metadata import version

from lucid_gpu.version import __version__

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Versions of this package and of NumPy, which computes on CPUs."""
    return f"lucid_gpu {__version__}\n  - NumPy {version('numpy')}\n"


def parallel_info() -> str:
    """The processors there are."""
    return f"processors: {os.cpu_count()}\n"
