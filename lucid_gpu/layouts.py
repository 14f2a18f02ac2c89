"""How a tensor's elements are kept: `strided` in one array, `sparse_coo` as a list of them."""

from __future__ import annotations

__all__ = ["layout", "sparse_coo", "strided"]


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
