"""What training scripts use beside the model."""

from lucid_gpu.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
