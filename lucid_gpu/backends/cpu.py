"""`torch.backends.cpu`: what a processor's kernels are written for."""

from __future__ import annotations

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """Return "DEFAULT": NumPy chooses its own vector instructions, and does not say which."""
    return "DEFAULT"
