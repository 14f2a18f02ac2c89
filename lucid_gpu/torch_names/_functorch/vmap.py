"""`torch._functorch.vmap`: `lucid_gpu.vmap`."""

from __future__ import annotations

from lucid_gpu.func import vmap

__all__ = ["vmap"]
