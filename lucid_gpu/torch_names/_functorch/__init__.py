"""`torch._functorch`: where PyTorch's files of `lucid_gpu.func` lie, which packages import from."""

from __future__ import annotations

from . import apis, eager_transforms, vmap

__all__ = ["apis", "eager_transforms", "vmap"]
