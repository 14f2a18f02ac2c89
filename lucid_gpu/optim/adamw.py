"""`AdamW`, where PyTorch has it."""

from lucid_gpu.optim.adam import AdamW, adamw

__all__ = ["AdamW", "adamw"]
