"""How filters slide: the settings of convolutions, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.kernels.windows import Window
from lucid_gpu.ops.arguments import as_ints
from lucid_gpu.tensor import Tensor

Sizes = tuple[int, ...]


class Slide(NamedTuple):
    """How filters slide along 1, 2 or 3 axes.

    Attributes
    ----------
    kernel, stride, padding, dilation : tuple of int
    beyond : tuple of int
        Padding more behind each axis.
    """

    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    beyond: Sizes

    def reach(self) -> Sizes:
        """How far a filter reaches along each axis."""
        return tuple([d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)])

    def padded(self, size: Sequence[int]) -> Sizes:
        """The size with its padding."""
        rows = zip(size, self.padding, self.beyond, strict=True)
        return tuple([n + 2 * p + more for n, p, more in rows])

    def window(self) -> Window:
        """Along the last two axes; signals have a first one of length 1."""
        fills = (1, 1, 0, 1, 0)
        last = [((fill, *v)[-2:]) for v, fill in zip(self, fills, strict=True)]
        return Window(*[(a, b) for a, b in last])

    def first(self) -> Window:
        """Along the first of three axes, over images whose pixels stand in a row."""
        fills = (1, 1, 0, 1, 0)
        return Window(*[(v[0], fill) for v, fill in zip(self, fills, strict=True)])


def slide_of(kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Slide:
    """Settings of a convolution as a user gives them."""
    rank = len(kernel)
    none = (0,) * rank
    strides, dilations = setting(stride, "stride", rank), setting(dilation, "dilation", rank)
    if min(kernel) < 1:
        raise RuntimeError(f"kernel size should be greater than zero, but got {list(kernel)}")
    if min(strides) < 1:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilations) < 1:
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilations)}")
    slide = Slide(tuple(kernel), strides, none, dilations, none)
    if not isinstance(padding, str):
        around = setting(padding, "padding", rank)
        if min(around) < 0:
            raise RuntimeError("negative padding is not supported")
        return slide._replace(padding=around)
    if padding == "valid":
        return slide
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'; write 'same' or 'valid'")
    if max(strides) > 1:
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    reach = slide.reach()
    return slide._replace(
        padding=tuple([(r - 1) // 2 for r in reach]),
        beyond=tuple([(r - 1) % 2 for r in reach]),  # PyTorch's sides: below and right
    )


def setting(value: Any, name: str, rank: int) -> Sizes:
    """An int, or one for each axis."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(values) == 1:
        values = values * rank
    sizes = as_ints(values)
    if sizes is None or len(sizes) != rank:
        got = list(values) if isinstance(value, Sequence) else repr(value)
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {rank} values to match the "
            f"convolution dimensions, but got {name}={got}"
        )
    return sizes


# --- what is refused ------------------------------------------------------------------------------


def check_ranks(name: str, rank: int, input: Tensor, weight: Tensor) -> None:
    """Refuse inputs of a rank that the filters do not slide over."""
    if input.ndim not in (rank + 1, rank + 2) or weight.ndim != rank + 2:
        raise RuntimeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but "
            f"got input of size: {list(input.shape)}, with weight of size {list(weight.shape)}"
        )


def check(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    """Refuse channels, dtypes and devices that do not fit a convolution."""
    if 0 < weight.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(weight.shape)} instead"
        )
    check_groups(weight, groups)
    intro = f"Given groups={groups}, weight of size {list(weight.shape)}"
    check_channels(intro, input, weight.shape[1] * groups)
    check_bias(f"Given weight of size {list(weight.shape)}", bias, weight.shape[0])
    check_kinds(input, weight, bias)


def check_groups(weight: Tensor, groups: int) -> None:
    """Refuse groups that do not split the filters evenly."""
    if groups < 1:
        raise RuntimeError("non-positive groups is not supported")
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by groups={groups} at "
            f"dimension 0, but got weight of size {list(weight.shape)} instead"
        )


def check_channels(intro: str, input: Tensor, channels: int) -> None:
    """Refuse another number of channels than the filters have."""
    if input.shape[1] != channels:
        raise RuntimeError(
            f"{intro}, expected input{list(input.shape)} to have {channels} channels, but got "
            f"{input.shape[1]} channels instead"
        )


def check_bias(intro: str, bias: Tensor | None, channels: int) -> None:
    """Refuse a bias that is not a number for each channel."""
    if bias is not None and tuple(bias.shape) != (channels,):
        raise RuntimeError(
            f"{intro}, expected bias to be 1-dimensional with {channels} elements, but got bias of "
            f"size {list(bias.shape)} instead"
        )


def check_kinds(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Refuse operands of several dtypes or devices."""
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype is not input.dtype:
            raise RuntimeError(
                f"Input type ({input.type()}) and {name} type ({other.type()}) should be the same"
            )
        if other is not None and other.device != input.device:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but the input is on "
                f"{input.device} and the {name} on {other.device}"
            )


def check_size(input: Tensor, slide: Slide) -> None:
    """Refuse filters that reach farther than the padded input."""
    padded, reach = slide.padded(input.shape[2:]), slide.reach()
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        size, kernel = (" x ".join(map(str, sizes)) for sizes in (padded, reach))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({size}). Kernel size: ({kernel}). "
            "Kernel size can't be greater than actual input size"
        )
