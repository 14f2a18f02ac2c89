"""How many elements a tensor has along its dimensions, and how they are kept.

A `Size` says how many there are along each dimension. A `layout` keeps elements in one array
(`strided`) or as a list (`sparse_coo`); a `memory_format` is the order of those of one array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lucid_gpu.dtypes import printed

__all__ = [
    "Size",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "layout",
    "memory_format",
    "preserve_format",
    "sparse_bsc",
    "sparse_bsr",
    "sparse_coo",
    "sparse_csc",
    "sparse_csr",
    "strided",
]


_size: Any = tuple.__new__  # of extents that are known to be numbers


def _extent(n: Any, position: int) -> int:
    if isinstance(n, int) and not isinstance(n, bool):
        return n
    if hasattr(n, "__index__") and getattr(n, "ndim", 0) == 0:
        return n.__index__()
    raise TypeError(f"Size() takes an iterable of 'int' (item {position} is '{type(n).__name__}')")


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple that prints as PyTorch's, and so do its parts and sums.

    Made of whole numbers: TypeError for others.
    """

    __slots__ = ()

    def __new__(cls, extents: Iterable[Any] = ()) -> Size:
        """One of the extents given, tensors of one integer among them."""
        return _size(cls, [_extent(n, i) for i, n in enumerate(extents)])

    def numel(self) -> int:
        """The product of the extents."""
        return math.prod(self)

    if not TYPE_CHECKING:

        def __getitem__(self, at):
            part = tuple.__getitem__(self, at)
            return _size(Size, part) if type(at) is slice else part

        def __add__(self, other):
            if not isinstance(other, tuple):
                reflected = getattr(type(other), "__radd__", None)
                joined = NotImplemented if reflected is None else reflected(other, self)
                if joined is NotImplemented:
                    kind = type(other).__name__
                    raise TypeError(f"can only concatenate tuple (not {kind}) to torch.Size")
                return joined
            return Size(tuple.__add__(self, other))

        def __radd__(self, other):
            return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

        def __mul__(self, times):
            return _size(Size, tuple.__mul__(self, times))

        __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"{printed()}.Size({list(self)})"


class layout:
    """A way of keeping elements, such as ``lucid_gpu.sparse_coo``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{printed()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
# for comparisons with `Tensor.layout`: no tensor has these
sparse_csc, sparse_bsr, sparse_bsc = map(layout, ("sparse_csc", "sparse_bsr", "sparse_bsc"))


class memory_format:
    """An order of elements, such as ``lucid_gpu.channels_last``.

    Attributes
    ----------
    name : str
    order : tuple of int or None
        Dimensions from the farthest to the nearest; None says that it depends on the tensor.
    """

    __slots__ = ("name", "order")

    def __init__(self, name: str, order: tuple[int, ...] | None) -> None:
        self.name, self.order = name, order

    def __repr__(self) -> str:
        return f"{printed()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format", None)
preserve_format = memory_format("preserve_format", None)
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))


def __getattr__(name: str) -> Any:
    """`TypedStorage` and `UntypedStorage`, which PyTorch has in this module."""
    from lucid_gpu.compat.module_names import imported

    kinds = dict.fromkeys(("TypedStorage", "UntypedStorage"), "lucid_gpu.ops.storages")
    return imported(globals(), name, kinds)
