"""What training loops do to gradients and sequences, under PyTorch's names."""

from lucid_gpu.nn.utils import rnn
from lucid_gpu.nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "rnn",
]
