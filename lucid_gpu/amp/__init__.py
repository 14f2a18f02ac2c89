"""Automatic mixed precision, under PyTorch's names."""

from lucid_gpu.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from lucid_gpu.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
