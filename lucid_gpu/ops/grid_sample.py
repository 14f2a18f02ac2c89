"""Images read at positions of a grid: pixels picked by number, weighted, added up.

Jaderberg et al., "Spatial Transformer Networks" (2015). An axis says which neighbors of a position
are read and with which weights; corners are the product over the axes. Everything is composed of
ops with gradients, that of the picked pixels being `index_add`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.arguments import require_one_device, require_tensor
from lucid_gpu.ops.creation import arange, ones
from lucid_gpu.ops.elementwise import hardtanh
from lucid_gpu.ops.record import keeping, leads_back, repeats
from lucid_gpu.ops.shape import owned, stack
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor, apply

__all__ = ["affine_grid", "grid_sample"]

FEW = 8  # channels

_ALIGNED = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. "
    "Please specify align_corners=True if the old behavior is desired. See the documentation of "
    "grid_sample for details."
)
_OF_ONE = (
    "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
    "align_corners=True. This is not an intended use case of affine_grid. See the documentation "
    "of affine_grid for details."
)


@op(autocast={"cpu": "float32", "cuda": "promote"})
@keeping("input", "grid")
@owned
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """``input`` read at the positions that ``grid`` names.

    Parameters
    ----------
    input : Tensor, shape (n, c, h, w) or (n, c, d, h, w)
    grid : Tensor, shape (n, oh, ow, 2) or (n, od, oh, ow, 3)
        ``(x, y)`` or ``(x, y, z)``, from -1 at the left, upper, front edge to 1 at the other.
    mode : {"bilinear", "nearest", "bicubic"}
        The last of images only.
    padding_mode : {"zeros", "border", "reflection"}
        What stands outside.
    align_corners : bool, optional
        Whether -1 and 1 are the centers of the outermost pixels, or their outer edges.

    Returns
    -------
    Tensor, shape (n, c, oh, ow) or (n, c, od, oh, ow)

    Raises
    ------
    ValueError
        For other modes.
    RuntimeError
        For shapes and dtypes that do not fit together, and empty images.
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if align_corners is None:
        warn_user(_ALIGNED)
    _check(input, grid, mode)
    sizes = tuple(input.shape[2:])
    axes = [
        _neighbors(grid[..., -1 - d], n, mode, padding_mode, bool(align_corners))
        for d, n in enumerate(sizes)
    ]
    return _summed(input, tuple(grid.shape[:-1]), axes)


def _check(input: Tensor, grid: Tensor, mode: str) -> None:
    require_tensor("grid_sampler", "input", 1, input)
    require_tensor("grid_sampler", "grid", 2, grid)
    require_one_device("grid_sampler", input, grid)
    shapes = f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
    if not input.shape[0] == grid.shape[0]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but got {shapes}"
        )
    if grid.shape[-1] != input.ndim - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but "
            f"got grid with sizes {list(grid.shape)}"
        )
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got {shapes}"
        )
    if mode == "bicubic" and input.ndim != 4:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    for dim, n in enumerate(input.shape[2:], 2):
        if not n:
            raise RuntimeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input "
                f"has sizes {list(input.shape)} with dimension {dim} being empty"
            )
    if input.dtype is not grid.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected scalar type {input.dtype.type_name} but found "
            f"{grid.dtype.type_name}"
        )


def _neighbors(
    at: Tensor, size: int, mode: str, padding: str, aligned: bool
) -> tuple[Tensor, Tensor]:
    """Which numbers along an axis are read, in a dimension more, and with which weights."""
    at = (at + 1) / 2 * (size - 1) if aligned else ((at + 1) * size - 1) / 2
    if mode == "bicubic":
        first = at.detach().floor()
        offsets = arange(-1, 3, dtype=at.dtype, device=at.device)
        position = _inside(first.unsqueeze(-1) + offsets, size, padding, aligned)
        distance = [(at - first - offset).abs() for offset in (-1, 0, 1, 2)]
        near = False, True, True, False
        weights = [_cubic(x, is_near) for x, is_near in zip(distance, near, strict=True)]
        return _within(position, stack(weights, -1), size)
    at = _inside(at, size, padding, aligned)
    if mode == "nearest":
        position = at.round().unsqueeze(-1)  # whose gradient is zeros
        return _within(position, 1 + (position - position.detach()), size)
    first = at.detach().floor()
    t = at - first
    return _within(stack([first, first + 1], -1), stack([1 - t, t], -1), size)


def _inside(at: Tensor, size: int, padding: str, aligned: bool) -> Tensor:
    """Positions brought inside; no gradient passes where they are cut off."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0.0, size - 1) if aligned else (-0.5, size)
        if not span:
            return at * 0
        at = (at - low).abs()
        flips = (at.detach() / span).floor()
        rest = at - flips * span
        at = low + apply(TABLE["where"], flips % 2 == 0, rest, span - rest)
    return hardtanh(at, 0.0, size - 1.0)


def _within(position: Tensor, weight: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """A number that exists, and a weight of zero where it did not."""
    there = (position >= 0).logical_and(position <= size - 1)
    number = apply(TABLE["where"], there, position.detach(), 0.0).long()
    return number, apply(TABLE["where"], there, weight, 0.0)


def _cubic(x: Tensor, near: bool) -> Tensor:
    """Keys' weights with a = -0.75, of the two near pixels or of the two far ones."""
    a = -0.75
    if near:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _summed(input: Tensor, out: tuple[int, ...], axes: Sequence[Any]) -> Tensor:
    n, c, *sizes = input.shape
    few = c < FEW
    image = 0 if few else arange(n, device=input.device).reshape(n, *[1] * (2 * len(sizes)))
    number, weight = _corners(axes, sizes, image)
    corners = prod(number.shape[len(out) :])
    if few:  # element by element where they lie: rows would be shorter than what a row costs
        places = prod(out[1:]) * corners
        numbers = number.reshape(n, 1, places).expand(n, c, places)
        read = input.flatten(2).gather(2, numbers) * weight.reshape(n, 1, places)
        of_few: Tensor = read.reshape(n, c, *out[1:], corners).sum(-1)
        return of_few
    last = (0, *range(2, input.ndim), 1)
    back = (0, input.ndim - 1, *range(1, input.ndim - 1))
    rows = leads_back(input.permute(last).reshape(-1, c), back)
    parts = rows.index_select(0, number.reshape(-1)) * weight.reshape(-1, 1)
    result: Tensor = parts.reshape(*out, corners, c).sum(-2).permute(back)
    return result.contiguous()


def _corners(axes: Sequence[Any], sizes: Sequence[int], first: Any) -> tuple[Tensor, Tensor]:
    """Row-major numbers of the pixels that are read, and their weights: a dimension more an axis.

    ``first`` comes before them.
    """
    number, weight = first, None
    for axis, ((index, share), size) in enumerate(zip(axes, sizes, strict=True)):
        *out, read = index.shape
        shape = (*out, *[1] * axis, read, *[1] * (len(sizes) - 1 - axis))
        index, share = index.reshape(shape), share.reshape(shape)
        number = number * size + index
        weight = share if weight is None else weight * share
    return number, weight  # type: ignore[return-value]


@op
@owned
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of positions that affine maps make of an image's or volume's own.

    Parameters
    ----------
    theta : Tensor, shape (n, 2, 3) or (n, 3, 4)
    size : sequence of int
        ``(n, c, h, w)`` or ``(n, c, d, h, w)`` of what `grid_sample` is to give.
    align_corners : bool, optional
        See `grid_sample`.

    Returns
    -------
    Tensor, shape (n, h, w, 2) or (n, d, h, w, 3)

    Raises
    ------
    ValueError, NotImplementedError, RuntimeError
        For maps of integers or of another shape, and for invalid sizes or another number of them.
    """
    require_tensor("affine_grid", "theta", 1, theta)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    sizes, axes = tuple(size), len(size) - 2
    if axes not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {sizes}."
        )
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (axes, axes + 1):
        raise ValueError(
            f"Expected a batch of {axes}D affine matrices of shape Nx{axes}x{axes + 1} for size "
            f"{sizes}. Got {theta.shape}."
        )
    if align_corners is None:
        warn_user(_ALIGNED)
    if min(sizes) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {sizes}")
    window = sizes[2:]
    if align_corners and 1 in window:
        warn_user(_OF_ONE)
    own = [
        _own_positions(n, bool(align_corners), theta).reshape(-1, *[1] * (axes - 1 - d))
        for d, n in enumerate(window)
    ]
    lines = [a.expand(window) for a in own[::-1]]
    base = stack([*lines, ones(window, dtype=theta.dtype, device=theta.device)], -1)
    if theta.shape[0] != sizes[0]:
        raise RuntimeError(
            f"Expected theta to have {sizes[0]} matrices, one for each image of size {sizes}, but "
            f"got {theta.shape[0]}"
        )
    result: Tensor = repeats(base.reshape(1, -1, axes + 1) @ theta.transpose(1, 2))
    return result.reshape(sizes[0], *window, axes)


def _own_positions(n: int, aligned: bool, like: Tensor) -> Tensor:
    numbers = arange(n, dtype=like.dtype, device=like.device)
    if aligned:
        return numbers * (2 / (n - 1)) - 1 if n > 1 else numbers
    return (numbers * 2 + 1) / n - 1
