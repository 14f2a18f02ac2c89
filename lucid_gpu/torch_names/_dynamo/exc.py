"""`torch._dynamo.exc`: what the compiler raises, for ``except``; nothing here does."""

from __future__ import annotations

__all__ = [
    "BackendCompilerFailed",
    "InternalTorchDynamoError",
    "TorchDynamoException",
    "Unsupported",
]


class TorchDynamoException(RuntimeError):
    """Any error of the compiler."""


class Unsupported(TorchDynamoException):
    """Code that cannot be traced."""


class BackendCompilerFailed(TorchDynamoException):
    """A compiler that failed."""


class InternalTorchDynamoError(TorchDynamoException):
    """A fault of the compiler itself."""
