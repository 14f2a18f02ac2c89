"""The backward graph's public face: what PyTorch has in ``torch.autograd.graph``."""

from __future__ import annotations

from lucid_gpu.autograd.saved_hooks import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)

__all__ = [
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "save_on_cpu",
    "saved_tensors_hooks",
]
