"""Windows that slide along axes, as views."""

from __future__ import annotations

from typing import Any

from lucid_gpu.tensor import Tensor

__all__ = ["sliding_window_view"]


def sliding_window_view(
    x: Tensor, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tensor:
    """`numpy.lib.stride_tricks.sliding_window_view`, whose windows are the last dimensions.

    Raises
    ------
    ValueError
        If there are not as many extents as axes, or a window is larger than its axis.
    """
    widths = tuple(window_shape) if hasattr(window_shape, "__iter__") else (window_shape,)
    axes = tuple(range(x.ndim)) if axis is None else axis
    axes = tuple(axes) if hasattr(axes, "__iter__") else (axes,)
    if len(widths) != len(axes):
        raise ValueError(
            f"sliding_window_view: window_shape {widths} needs one extent for each of axes {axes}"
        )
    rank, shape = x.ndim, tuple(x.shape)
    for width, a in zip(widths, axes, strict=True):
        if not 0 <= width <= x.shape[a % rank]:
            raise ValueError(f"sliding_window_view: window_shape {widths} is too large for {shape}")
        x = x.unfold(a % rank, width, 1)
    return x
