"""A bucket of gradients, as hooks of `DistributedDataParallel` are given it."""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu.tensor import Tensor

__all__ = ["GradBucket"]


class GradBucket:
    """Gradients that are sent together, as one flat tensor.

    Parameters
    ----------
    index : int
        Of the bucket; 0 travels first.
    buffer : Tensor, shape (n,)
    parameters : sequence of Tensor
    is_last : bool
    """

    def __init__(
        self, index: int, buffer: Tensor, parameters: Sequence[Tensor], is_last: bool
    ) -> None:
        self._index, self._buffer = index, buffer
        self._parameters, self._is_last = list(parameters), is_last

    def index(self) -> int:
        """The bucket's number; 0 travels first."""
        return self._index

    def buffer(self) -> Tensor:
        """All gradients, as one tensor of shape (n,)."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the gradients by another tensor of shape (n,)."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients, each a view of the buffer in its parameter's shape."""
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters)]

    def parameters(self) -> list[Tensor]:
        """The parameters, of any shapes, in the order of the gradients."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether no bucket comes after it."""
        return self._is_last
