"""Padding modules: one table."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.utils import _ntuple, _pair, _quadruple  # noqa: F401  packages take them from here
from lucid_gpu.tensor import Tensor

# fmt: off
__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
    "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]
# fmt: on


_ABOUT = """{summary}

The input and the result have the dimensions {shapes}.

Parameters
----------
padding : int or tuple of int
    ``(before, after)`` of the last dimension, then of the one before it, and so on; an int for
    all. Negative numbers remove elements."""
_SUMMARIES = {
    "constant": "Pad the last dimensions with a constant.",
    "zero": "Pad the last dimensions with zeros.",
    "reflect": "Pad the last dimensions by reflecting the input, without repeating its border.",
    "replicate": "Pad the last dimensions by repeating the border of the input.",
    "circular": "Pad the last dimensions with elements from the opposite end of the input.",
}
_SHAPES = (
    "",
    "(n, c, l) or (c, l)",
    "(n, c, h, w) or (c, h, w)",
    "(n, c, d, h, w) or (c, d, h, w)",
)


class _Pad(Module):
    rank: int
    mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        whole = isinstance(padding, int)
        self.padding = (padding,) * (2 * self.rank) if whole else tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        if self.mode == "circular" and input.dim() not in (self.rank + 1, self.rank + 2):
            raise ValueError(
                f"expected {self.rank + 1}D or {self.rank + 2}D input (got {input.dim()}D input)"
            )
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_Pad):
    pass


class _ReplicationPadNd(_Pad):
    pass


class _CircularPadNd(_Pad):
    pass


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


def _row(name: str, base: type[_Pad], rank: int, mode: str, *others: type[_Pad]) -> Any:
    summary = _SUMMARIES["zero" if base is _ZeroPad else mode]
    about = _ABOUT.format(summary=summary, shapes=_SHAPES[rank])
    if base is _ConstantPadNd:
        about += "\nvalue : float"
    body = {"rank": rank, "mode": mode, "__doc__": about, "__module__": __name__}
    return type(name, (base, *others), body)


# fmt: off
ConstantPad1d    = _row("ConstantPad1d", _ConstantPadNd, 1, "constant")
ConstantPad2d    = _row("ConstantPad2d", _ConstantPadNd, 2, "constant")
ConstantPad3d    = _row("ConstantPad3d", _ConstantPadNd, 3, "constant")
ZeroPad1d        = _row("ZeroPad1d", _ZeroPad, 1, "constant", ConstantPad1d)
ZeroPad2d        = _row("ZeroPad2d", _ZeroPad, 2, "constant", ConstantPad2d)
ZeroPad3d        = _row("ZeroPad3d", _ZeroPad, 3, "constant", ConstantPad3d)
ReflectionPad1d  = _row("ReflectionPad1d", _ReflectionPadNd, 1, "reflect")
ReflectionPad2d  = _row("ReflectionPad2d", _ReflectionPadNd, 2, "reflect")
ReflectionPad3d  = _row("ReflectionPad3d", _ReflectionPadNd, 3, "reflect")
ReplicationPad1d = _row("ReplicationPad1d", _ReplicationPadNd, 1, "replicate")
ReplicationPad2d = _row("ReplicationPad2d", _ReplicationPadNd, 2, "replicate")
ReplicationPad3d = _row("ReplicationPad3d", _ReplicationPadNd, 3, "replicate")
CircularPad1d    = _row("CircularPad1d", _CircularPadNd, 1, "circular")
CircularPad2d    = _row("CircularPad2d", _CircularPadNd, 2, "circular")
CircularPad3d    = _row("CircularPad3d", _CircularPadNd, 3, "circular")
# fmt: on
