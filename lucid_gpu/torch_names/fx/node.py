"""`torch.fx.node`: parts of graphs, for `isinstance`."""

from lucid_gpu.fx import Node

__all__ = ["Node"]
