"""`torch._functorch`: where PyTorch's files of `lucid_gpu.func` lie, which packages import from."""

from __future__ import annotations

import importlib

from . import apis, eager_transforms

__all__ = ["apis", "eager_transforms", "vmap"]

vmap = importlib.import_module(f"{__name__}.vmap")
