"""Channels of groups dealt out in turn."""

from __future__ import annotations

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """The channels of ``(n, c, *)``, ``groups`` groups of them, dealt out in turn.

    Parameters
    ----------
    groups : int
        A divisor of c.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
