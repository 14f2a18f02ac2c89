"""einops on tensors: what its functions call (https://einops.rocks).

einops finds its back ends among the subclasses of one of its classes, so `import lucid_gpu` imports
this file, whichever of the two comes first. opt_einsum needs nothing: it calls
`lucid_gpu.tensordot`, `lucid_gpu.transpose` and `lucid_gpu.einsum`, as of every package whose
arrays it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops._backends import AbstractBackend

from lucid_gpu.ops.creation import arange, from_numpy
from lucid_gpu.ops.shape import cat, stack
from lucid_gpu.tensor import Tensor


class LucidBackend(AbstractBackend):
    """einops' back end for `Tensor`; it is found by being a subclass."""

    framework_name = "lucid_gpu"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether this back end takes an object."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        """A tensor of an array; floats require grad, as einops' tests expect."""
        made = from_numpy(x)
        return made._mark() if self.is_float_type(made) else made

    def to_numpy(self, x: Tensor) -> Any:
        """The elements, apart from the graph and on the host."""
        return x.numpy(force=True)

    def arange(self, start: int, stop: int) -> Tensor:
        """Whole numbers."""
        return arange(start, stop)

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        """A reduction over several axes, by einops' name of it."""
        if operation in ("min", "max"):
            operation = f"a{operation}"
        if operation in ("amin", "amax", "sum", "mean"):
            reduced: Tensor = getattr(x, operation)(tuple(axes))
            return reduced
        for axis in sorted(axes, reverse=True):
            x = getattr(x, operation)(axis)
        return x

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """The axes in another order."""
        return x.permute(axes)

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        """What stands in a list, as one tensor."""
        return stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """A new axis of extent 1."""
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        """New axes along which elements repeat, without a copy."""
        repeats = [-1] * n_axes
        for position, length in pos2len.items():
            x = x.unsqueeze(position)
            repeats[position] = length
        return x.expand(repeats)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """The tensor several times."""
        return x.repeat(repeats)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors joined along an axis."""
        return cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        """Whether means can be taken."""
        return x.dtype.is_floating_point

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        """Sums of products."""
        from lucid_gpu.ops.einsum import einsum

        return einsum(pattern, *x)

    def layers(self) -> Any:
        """The module with einops' layers."""
        from lucid_gpu.nn import einops

        return einops
