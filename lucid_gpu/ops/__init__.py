"""Ops that are not elementwise, by family, and the compositions."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """`torch.ops.aten`, which packages that name ops so ask for."""
    if name == "aten":
        return importlib.import_module("lucid_gpu._ops").aten
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
