"""How a tensor's elements are kept: `strided` in one array, `sparse_coo` as a list of them.

And in which order those of one array lie: a `memory_format`.
"""

from __future__ import annotations

__all__ = [
    "channels_last", "channels_last_3d", "contiguous_format", "layout", "memory_format",
    "preserve_format", "sparse_coo", "strided",
]  # fmt: skip


class layout:
    """A way of keeping elements, such as ``lucid_gpu.sparse_coo``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"lucid_gpu.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = layout("strided")
sparse_coo = layout("sparse_coo")


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
        return f"lucid_gpu.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format", None)
preserve_format = memory_format("preserve_format", None)
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))
