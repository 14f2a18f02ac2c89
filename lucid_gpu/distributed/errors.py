"""What goes wrong between processes, under PyTorch's names."""

from __future__ import annotations

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError"]


class DistError(RuntimeError):
    """Anything that goes wrong between processes."""


class DistBackendError(DistError):
    """An engine failed, or a rank did not come in time."""


class DistNetworkError(DistError):
    """A connection failed."""


class DistStoreError(DistError):
    """A key of a store did not come in time."""


class QueueEmptyError(DistStoreError):
    """A queue of a store is empty."""
