"""`torch.utils.deterministic`: what becomes of memory that nobody wrote."""

from __future__ import annotations

__all__ = ["fill_uninitialized_memory"]

# PyTorch writes NaN into `empty` under `use_deterministic_algorithms` where this is True. Here the
# flag is kept, and `empty` gives what the memory holds.
fill_uninitialized_memory = True
