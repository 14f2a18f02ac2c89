"""`functorch.experimental`: what has become `lucid_gpu.func` since."""

from __future__ import annotations

from lucid_gpu.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_
from lucid_gpu.func import vmap as chunk_vmap

__all__ = [
    "chunk_vmap",
    "functionalize",
    "hessian",
    "jacfwd",
    "jvp",
    "replace_all_batch_norm_modules_",
]
