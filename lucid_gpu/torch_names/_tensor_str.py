"""`torch._tensor_str`: the text of a tensor's elements, for packages that print their own."""

from __future__ import annotations

from lucid_gpu import Tensor
from lucid_gpu.ops.printing import OPENING, _options, get_printoptions, printoptions

__all__ = ["PRINT_OPTS", "_str", "_tensor_str", "get_printoptions", "printoptions"]

PRINT_OPTS = _options


def _tensor_str(self: Tensor, indent: int) -> str:
    """The elements between brackets; further lines are indented."""
    text = str(self.detach())
    elements = text[len(OPENING) : text.rindex("]") + 1] if self.ndim else text[len(OPENING) : -1]
    return elements.replace("\n" + " " * len(OPENING), "\n" + " " * indent)


def _str(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """A tensor as text; with the text of its elements, if that is given."""
    return str(self) if tensor_contents is None else f"{OPENING}{tensor_contents})"
