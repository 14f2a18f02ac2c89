"""`torch.utils.hooks`: what registering a hook gives, and hooks that see no more than they need."""

from __future__ import annotations

from lucid_gpu.core.node import RemovableHandle

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: object) -> object:
    """The hook itself."""
    return f


def warn_if_has_hooks(tensor: object) -> None:
    """Do nothing: files hold values, never hooks."""
