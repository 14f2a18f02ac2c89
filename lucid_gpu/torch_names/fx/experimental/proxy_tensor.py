"""`torch.fx.experimental.proxy_tensor`: whether tensors are being traced."""

from __future__ import annotations

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """The mode that traces tensors into a graph: there is none."""
