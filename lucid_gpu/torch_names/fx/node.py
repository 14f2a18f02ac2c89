"""`torch.fx.node`: parts of graphs, for `isinstance`."""

from . import Node

__all__ = ["Node"]
