"""The usual cases in C, where that was compiled.

Each function of ``core/native/`` names the Python function whose short cut it is, and leaves what
is unusual to that: all is right without it, and has the same bits. ``LUCID_NATIVE_CORE=0`` does
without.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def _optional(name: str) -> Any:
    """Return a module in C, None where it was not compiled or is not wanted."""
    if os.environ.get("LUCID_NATIVE_CORE", "") == "0":
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


core = _optional("lucid_gpu._core")
gpu = _optional("lucid_gpu._gpu")  # of launches and allocations on a GPU
