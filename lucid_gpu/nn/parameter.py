"""Tensors that a module learns, and tensors it only carries."""

from __future__ import annotations

from typing import Any, TypeVar

from lucid_gpu.ops.creation import empty
from lucid_gpu.tensor import Tensor

__all__ = ["Buffer", "Parameter"]

_T = TypeVar("_T", bound=Tensor)


def _made_from(cls: type[_T], data: Tensor | None) -> _T:
    """A leaf of a subclass that shares a tensor's memory, but not its history."""
    if data is not None and not isinstance(data, Tensor):
        raise TypeError(f"{cls.__name__} takes a Tensor, got {type(data).__name__}")
    if data is not None and data.is_sparse:
        raise NotImplementedError(
            f"{cls.__name__} holds dense tensors: call .to_dense() first, or make the values of a "
            "sparse tensor the parameter"
        )
    same = (empty(0) if data is None else data).detach()
    made = object.__new__(cls)
    made._expr, made._storage = same._expr, same._storage
    made._memory().add(made)
    return made


class Parameter(Tensor):
    """A tensor that a `Module` registers as learnable when it is assigned as an attribute.

    Parameters
    ----------
    data : Tensor, optional
        Initial value; its memory is shared, its history is not. An empty tensor by default.
    requires_grad : bool
        True by default.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        made = _made_from(cls, data)
        return made.requires_grad_() if requires_grad else made  # type: ignore[return-value]

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A copy that has learnt nothing yet: without the gradient, as in PyTorch."""
        other: Any = super().__deepcopy__(memo)
        other.grad = None
        return other

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that a `Module` registers as state that is not learnt.

    Parameters
    ----------
    data : Tensor, optional
    persistent : bool
        Whether `Module.state_dict` contains it.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        made = _made_from(cls, data)
        made.persistent = persistent
        return made
