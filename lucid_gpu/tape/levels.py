"""Levels: transformations that give tensors a further value, and interpret ops on them.

Forward-mode AD gives a tensor a tangent, vmap gives it a batch. A tensor with such a value is
*wrapped*: it holds a `Wrapper`, and its program carries a mark that bars the straight path, so that
ordinary tensors pay nothing. Every op on wrapped tensors comes to the innermost level among them,
which takes its own wrappers off, applies the op again, and wraps the result. Levels nest.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import Any

open_levels: list[Level] = []  # while it is empty, nobody looks for wrapped tensors
_numbers = itertools.count(1)
_FIRST = 1 << 40
ENDED = (
    "vmap: your tensor may have escaped from inside a function being vmapped and this is a user "
    "error: it was used after its vmap had ended. Return it from the function instead."
)
MARKED_INSIDE = (
    "You are attempting to call Tensor.requires_grad_() (or perhaps using "
    "torch.autograd.functional.* APIs) inside of a function being transformed by a functorch "
    "transform. This is unsupported, please attempt to use the transforms of lucid_gpu.func (e.g. "
    "grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside of a function being "
    "transformed instead."
)
BACKWARD_INSIDE = (
    "backward() called inside a functorch transform. This is not supported, please use "
    "lucid_gpu.func.grad or lucid_gpu.func.vjp instead or call backward() outside of transforms."
)


class Wrapper:
    """What a level knows of a tensor.

    Attributes
    ----------
    level : Level
    below : Wrapper or None
        What a level further out knows of it.
    """

    __slots__ = ("below", "level")

    def __init__(self, level: Level) -> None:
        self.level = level
        self.below: Wrapper | None = None


class Level:
    """One transformation under way; subclasses interpret the ops.

    ``number`` orders levels: one opened later is further in, and sees an op first. Those that batch
    come before all others, so that these see values with arrays.
    """

    batches = False

    def __init__(self) -> None:
        self.number = next(_numbers) + (_FIRST if self.batches else 0)
        self.members: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def __enter__(self) -> Any:
        open_levels.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take this level's wrappers off every living tensor."""
        open_levels.remove(self)
        for tensor in list(self.members.values()):
            self.release(tensor)
        self.members.clear()

    def release(self, tensor: Any) -> None:
        """Take this level's wrapper off a tensor."""
        raise NotImplementedError

    def apply(self, op: Any, operands: Any, to: Any, shape: Any) -> Any:
        """Interpret an elementwise op."""
        raise NotImplementedError

    def record(self, *call: Any, **attributes: Any) -> Any:
        """Interpret `ops.record.record`: an op whose array is known."""
        raise NotImplementedError

    def call(self, function: Any, body: Any, args: Any, kwargs: Any) -> Any:
        """Interpret a call of an op that is not elementwise; ``body`` is what it does otherwise."""
        return body(*args, **kwargs)

    def view(self, *call: Any, **attributes: Any) -> Any:
        """Interpret `ops.shape.view_of`."""
        raise NotImplementedError

    def become(self, tensor: Any, change: Any, view_of: Any) -> None:
        """Interpret `ops.axes.becoming`; a level of batches is seen there."""
        raise NotImplementedError

    def write(self, target: Any, value: Any, name: str) -> Any:
        """Interpret an in-place write."""
        raise NotImplementedError

    def function(self, cls: Any, args: Any) -> Any:
        """Interpret a call of a custom function."""
        raise NotImplementedError

    def grad(self, *call: Any, **options: Any) -> Any:
        """Interpret `autograd.grad`."""
        raise NotImplementedError

    def detach(self, tensor: Any) -> Any:
        """Interpret `Tensor.detach`."""
        raise NotImplementedError

    def alias(self, tensor: Any) -> Any:
        """Interpret `Tensor.alias`."""
        raise NotImplementedError

    def over(self, tensor: Any, function: Any) -> Any:
        """The wrapped tensor with ``function(part)`` for each of its parts."""
        raise NotImplementedError

    def shown(self, tensor: Any) -> list[str]:
        """What the ``repr`` of a wrapped tensor says of this level."""
        return []

    def parts(self, tensor: Any) -> Any:
        """The tensors, one level down, that a wrapped one consists of."""
        raise NotImplementedError


def innermost(values: Iterable[Any]) -> Any:
    """The level that interprets an op on these values; None if nobody has to."""
    level: Level | None = None
    for value in values:
        wrapper = getattr(value, "_wrapper", None)
        if wrapper is not None and (level is None or wrapper.level.number > level.number):
            level = wrapper.level
    return level
