"""`torch._vmap_internals`: the first `vmap`, which packages still import."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from lucid_gpu import func, zeros

__all__ = ["vmap"]


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """`lucid_gpu.vmap` under its first name, with a warning."""
    warnings.warn(
        "Please use torch.vmap instead of torch._vmap_internals.vmap.", FutureWarning, stacklevel=2
    )
    return _vmap(func, in_dims, out_dims)


def _vmap(
    function: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    allow_none_pass_through: bool = False,
) -> Callable[..., Any]:
    """`lucid_gpu.vmap`; a result may also be None, with ``allow_none_pass_through``."""
    if not allow_none_pass_through:
        return func.vmap(function, in_dims, out_dims)

    @functools.wraps(function)
    def mapped(*args: Any) -> Any:
        absent: list[bool] = []

        def filled(*slices: Any) -> Any:
            results = function(*slices)
            parts = results if isinstance(results, tuple) else (results,)
            absent[:] = [part is None for part in parts]
            full = tuple([zeros(()) if part is None else part for part in parts])
            return full if isinstance(results, tuple) else full[0]

        mapped = func.vmap(filled, in_dims, out_dims)(*args)
        if not isinstance(mapped, tuple):
            return None if absent[0] else mapped
        return tuple([None if no else t for no, t in zip(absent, mapped, strict=True)])

    return mapped
