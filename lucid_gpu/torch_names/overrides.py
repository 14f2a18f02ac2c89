"""`torch.overrides`: ops ask no ``__torch_function__``, so nobody overrides any."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lucid_gpu.tensor import Tensor

__all__ = [
    "TorchFunctionMode",
    "get_ignored_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "resolve_name",
]


class TorchFunctionMode:
    """A ``with`` that in PyTorch sees every op; here it sees none, and a warning says so."""

    def __enter__(self) -> TorchFunctionMode:
        warnings.warn(
            f"{type(self).__name__}: ops ask no __torch_function__, so this mode sees none of them",
            stacklevel=2,
        )
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function."""
        return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Sequence[Any]) -> bool:
    """Whether an argument overrides ops: ops do not ask, so none does."""
    return False


def has_torch_function_unary(obj: Any) -> bool:
    """Whether an object overrides ops: ops do not ask, so it does not."""
    return False


def has_torch_function_variadic(*args: Any) -> bool:
    """Whether an argument overrides ops: ops do not ask, so none does."""
    return False


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Any, *args: Any, **kwargs: Any
) -> NoReturn:
    """Refuse with a TypeError: nobody calls it where `has_torch_function` is asked before."""
    raise TypeError(
        f"no implementation found for {resolve_name(public_api)}: ops do not call "
        "__torch_function__; call a function of yours in its place"
    )


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor, or defines ``__torch_function__``."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def get_ignored_functions() -> set[Callable[..., Any]]:
    """The functions that cannot be overridden, were others to be."""
    return set()


def resolve_name(f: Callable[..., Any]) -> str:
    """The name of a function."""
    return f"{f.__module__}.{f.__qualname__}"
