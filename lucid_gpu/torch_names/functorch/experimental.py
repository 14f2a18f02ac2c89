"""`functorch.experimental`: what has become `lucid_gpu.func` since."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu.func import (
    functionalize,
    hessian,
    jacfwd,
    jvp,
    replace_all_batch_norm_modules_,
    vmap,
)
from lucid_gpu.func.vmap import _process_batched_inputs

__all__ = [
    "chunk_vmap",
    "functionalize",
    "hessian",
    "jacfwd",
    "jvp",
    "replace_all_batch_norm_modules_",
]


def chunk_vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    chunks: int = 2,
) -> Callable[..., Any]:
    """`lucid_gpu.func.vmap` in so many chunks, of one size but for the last.

    RuntimeError for another ``randomness``.
    """
    whole = vmap(func, in_dims, out_dims, randomness)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        size = _process_batched_inputs(in_dims, args, func)[0]
        count = -(-size // chunks)
        if count in (0, size):
            return whole(*args, **kwargs)
        return vmap(func, in_dims, out_dims, randomness, chunk_size=count)(*args, **kwargs)

    return mapped
