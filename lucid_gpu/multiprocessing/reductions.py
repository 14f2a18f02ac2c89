"""`torch.multiprocessing.reductions`: how tensors travel to another process."""

from lucid_gpu.multiprocessing import _reduced as reduce_tensor

__all__ = ["reduce_tensor"]
