"""`torch.fx._compatibility`: a mark on functions, which packages put on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["compatibility"]


def compatibility(is_backward_compatible: bool) -> Callable[[Any], Any]:
    """A decorator that gives its function back."""
    return lambda function: function
