"""Ops that are not elementwise, by family, and the compositions."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def __getattr__(name: str) -> Any:
    """`torch.ops.aten`, and the namespaces of ops that `torch.library` was given."""
    if name == "aten":
        return importlib.import_module("lucid_gpu._ops").aten
    if not name.startswith("_") and "lucid_gpu.library" in sys.modules:
        namespace = importlib.import_module("lucid_gpu._ops").of_users(name)
        if namespace is not None:
            return namespace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
