"""What training scripts use beside the model."""

from lucid_gpu.utils import data

__all__ = ["data"]
