"""How filters slide: the settings of convolutions, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lucid_gpu.kernels.windows import Frame, Window, frame_of
from lucid_gpu.ops.arguments import as_ints, require_tensor
from lucid_gpu.tensor import Tensor

Sizes = tuple[int, ...]

_INTS = frozenset((int,))


def framed(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> tuple[Tensor, Frame]:
    """Return the input as a batch, perhaps of one, and how the filters slide over it."""
    require_tensor(f"conv{rank}d", "input", 1, input)
    size, filters = input._expr.shape, weight._expr.shape
    check_ranks(f"conv{rank}d", rank, size, filters)
    x = input if len(size) == len(filters) else input.unsqueeze(0)
    frame = _frame(
        x._expr.shape,
        filters,
        None if bias is None else bias._expr.shape,
        setting(stride, "stride", rank),
        padding if isinstance(padding, str) else setting(padding, "padding", rank),
        setting(dilation, "dilation", rank),
        groups,
    )
    check_kinds(input, weight, bias)
    return x, frame


@functools.lru_cache(maxsize=1 << 10)
def _frame(
    size: Sizes,
    filters: Sizes,
    bias: Sizes | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Frame:
    window = window_of(filters[2:], stride, padding, dilation)
    if 0 < filters[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(filters)} instead"
        )
    check_groups(filters, groups)
    intro = f"Given groups={groups}, weight of size {list(filters)}"
    check_channels(intro, size, filters[1] * groups)
    check_bias(f"Given weight of size {list(filters)}", bias, filters[0])
    padded, reach = window.padded(size[2:]), window.reach()
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        have, wanted = (" x ".join(map(str, sizes)) for sizes in (padded, reach))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({have}). Kernel size: ({wanted}). "
            "Kernel size can't be greater than actual input size"
        )
    if len(size) == 3:
        size, window = (*size[:2], 1, size[2]), window.over_images()
    return frame_of(size, window)


def window_of(kernel: Sizes, stride: Sizes, padding: Sizes | str, dilation: Sizes) -> Window:
    """Return how filters slide, from settings along each axis."""
    none = (0,) * len(kernel)
    if min(kernel) < 1:
        raise RuntimeError(f"kernel size should be greater than zero, but got {list(kernel)}")
    if min(stride) < 1:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) < 1:
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
    if not isinstance(padding, str):
        if min(padding) < 0:
            raise RuntimeError("negative padding is not supported")
        return Window(kernel, stride, padding, dilation, none)
    window = Window(kernel, stride, none, dilation, none)
    if padding == "valid":
        return window
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'; write 'same' or 'valid'")
    if max(stride) > 1:
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    reach = window.reach()
    return window._replace(
        padding=tuple([(r - 1) // 2 for r in reach]),
        beyond=tuple([(r - 1) % 2 for r in reach]),  # PyTorch's sides: below and right
    )


def setting(value: Any, name: str, rank: int) -> Sizes:
    """Return an int for each axis, of a setting that is one or as many."""
    if type(value) is int:
        return (value,) * rank
    if type(value) is tuple and len(value) == rank and _INTS.issuperset(map(type, value)):
        return value
    several = isinstance(value, (tuple, list, Sequence))
    values = tuple(value) if several else (value,)
    if len(values) == 1:
        values = values * rank
    sizes = as_ints(values)
    if sizes is None or len(sizes) != rank:
        got = list(values) if several else repr(value)
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {rank} values to match the "
            f"convolution dimensions, but got {name}={got}"
        )
    return sizes


# --- what is refused ------------------------------------------------------------------------------


def check_ranks(name: str, rank: int, size: Sizes, filters: Sizes) -> None:
    """Refuse inputs of a rank that the filters do not slide over."""
    if len(size) not in (rank + 1, rank + 2) or len(filters) != rank + 2:
        raise RuntimeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but "
            f"got input of size: {list(size)}, with weight of size {list(filters)}"
        )


def check_groups(filters: Sizes, groups: int) -> None:
    """Refuse groups that do not split the filters evenly."""
    if groups < 1:
        raise RuntimeError("non-positive groups is not supported")
    if filters[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by groups={groups} at "
            f"dimension 0, but got weight of size {list(filters)} instead"
        )


def check_channels(intro: str, size: Sizes, channels: int) -> None:
    """Refuse another number of channels than the filters have."""
    if size[1] != channels:
        raise RuntimeError(
            f"{intro}, expected input{list(size)} to have {channels} channels, but got "
            f"{size[1]} channels instead"
        )


def check_bias(intro: str, bias: Sizes | None, channels: int) -> None:
    """Refuse a bias that is not a number for each channel."""
    if bias is not None and bias != (channels,):
        raise RuntimeError(
            f"{intro}, expected bias to be 1-dimensional with {channels} elements, but got bias of "
            f"size {list(bias)} instead"
        )


def check_kinds(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Refuse operands of several dtypes or devices."""
    like = input._expr.program
    for name, other in (("weight", weight), ("bias", bias)):
        if other is None:
            continue
        if other._expr.program.dtype is not like.dtype:
            raise RuntimeError(
                f"Input type ({input.type()}) and {name} type ({other.type()}) should be the same"
            )
        if other._expr.program.device != like.device:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but the input is on "
                f"{input.device} and the {name} on {other.device}"
            )
