"""`torch._higher_order_ops.associative_scan`: running results of a function of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import Tensor, cat
from lucid_gpu.func.trees import flatten, unflatten

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[..., Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """Return what `combine_fn` makes of each slice of `xs` along `dim` and of all before it.

    Parameters
    ----------
    combine_fn : callable
        Of two trees like `xs`, associative; it is called with many slices at once.
    xs : tree of Tensor
        Of one size along `dim`, shape (..., n, ...).
    dim : int
    reverse : bool
        Begin at the end.
    combine_mode : {"pointwise", "generic"}
        Taken as PyTorch takes it.

    Raises
    ------
    ValueError
        For another mode, no tensor, or a scan along nothing.
    """
    leaves, shape = flatten(xs)
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    if not leaves or not all(isinstance(x, Tensor) for x in leaves):
        raise ValueError("Expected at least 1 xs leaf, and all xs leaves to be a Tensor")
    if any(x.shape[dim] == 0 for x in leaves):
        raise ValueError("All xs leaves must at least have 'dim' number of dimensions, none empty")

    def combined(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        made, _ = flatten(combine_fn(unflatten(a, shape), unflatten(b, shape)))
        return made

    n, step = leaves[0].shape[dim], 1
    running = [x.flip(dim) if reverse else x for x in leaves]
    while step < n:  # each place has the result of `step` slices, and then of twice as many
        later = combined(
            [x.narrow(dim, 0, n - step) for x in running],
            [x.narrow(dim, step, n - step) for x in running],
        )
        running = [cat([x.narrow(dim, 0, step), y], dim) for x, y in zip(running, later)]
        step *= 2
    return unflatten([x.flip(dim) if reverse else x for x in running], shape)
