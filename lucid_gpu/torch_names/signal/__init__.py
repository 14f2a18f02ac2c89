"""`torch.signal`: `windows`."""

from lucid_gpu.signal import windows

__all__ = ["windows"]
