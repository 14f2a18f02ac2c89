"""`torch._functorch.eager_transforms`: the transformations that differentiate."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
)
from lucid_gpu.func.transforms import chosen

__all__ = [
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "vjp",
]


def _slice_argnums(args: tuple[Any, ...], argnums: Any, as_tuple: bool = True) -> Any:
    """The arguments of these numbers; with ``as_tuple=False`` one alone for a number.

    RuntimeError for numbers that are not in the range, or not unique.
    """
    some = chosen(args, argnums)
    return some[0] if not as_tuple and isinstance(argnums, int) else some
