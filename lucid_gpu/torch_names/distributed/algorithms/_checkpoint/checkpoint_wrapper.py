"""Modules whose inside is computed again in backward, or kept on the host until then."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from lucid_gpu.autograd.graph import save_on_cpu
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.utils.checkpoint import checkpoint

__all__ = [
    "ActivationWrapper",
    "CheckpointImpl",
    "CheckpointWrapper",
    "OffloadWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "offload_wrapper",
]

_INSIDE = "_checkpoint_wrapped_module"
_PREFIX = f"{_INSIDE}."


class CheckpointImpl(Enum):
    """Which of the two ways of `utils.checkpoint` is taken."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


def _renamed(state: dict[str, Any], before: str, after: str) -> None:
    for name in [n for n in state if n.startswith(before)]:
        state[after + name.removeprefix(before)] = state.pop(name)


def _left_out(module: Any, state: dict[str, Any], prefix: str, *args: Any) -> None:
    _renamed(state, f"{prefix}{_PREFIX}", prefix)


def _put_in(module: Any, state: dict[str, Any], prefix: str, *args: Any) -> None:
    _renamed(state, prefix, f"{prefix}{_PREFIX}")


class ActivationWrapper(Module):
    """A module around another one, whose attributes and names of parameters and states it has."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_left_out)
        self.register_load_state_dict_pre_hook(_put_in)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse with a ValueError: classes below say how the module is called."""
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]  # type: ignore[index]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Yield names, as of the module inside, and parameters; arguments as of `Module`."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter


class OffloadWrapper(ActivationWrapper):
    """Keeps what the module inside saves on the host."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Keeps the module's arguments alone, and calls it once more in backward.

    Parameters
    ----------
    mod : Module
    checkpoint_impl : CheckpointImpl
    checkpoint_fn : callable, optional
        Instead of `utils.checkpoint.checkpoint`.
    **checkpoint_fn_kwargs
        For that function.
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = functools.partial(
                checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT
            )
        self.checkpoint_fn = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns."""
        inside = self._checkpoint_wrapped_module
        if self.checkpoint_impl is not CheckpointImpl.REENTRANT or not kwargs:
            return self.checkpoint_fn(inside, *args, **kwargs)
        count, names = len(args), list(kwargs)

        def by_position(*given: Any) -> Any:  # which is how a reentrant checkpoint hands them on
            return inside(*given[:count], **dict(zip(names, given[count:], strict=True)))

        return self.checkpoint_fn(by_position, *args, *kwargs.values())


def offload_wrapper(module: Module) -> Module:
    """Return `module` in an `OffloadWrapper`."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """Return `module` in a `CheckpointWrapper`, given the other arguments."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
) -> None:
    """Put each module inside `model` for which `check_fn` is true into what the function makes.

    Modules inside come before those around them; `model` itself stays as it is.
    """
    for name, child in model.named_children():
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
