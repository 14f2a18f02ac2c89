"""`torch.utils.serialization.config`: what `save` and `load` do where they are not told."""

from lucid_gpu.compat.settings import patcher
from lucid_gpu.serialization.options import load, save

__all__ = ["load", "patch", "save"]

patch = patcher(globals())
