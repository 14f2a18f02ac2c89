"""Hooks around an optimizer's step, and around saving and loading its state."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from lucid_gpu.core.node import RemovableHandle, add_hook

__all__ = ["Hooked", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

Hook = Callable[..., Any]

_before_all: OrderedDict[int, Hook] = OrderedDict()
_after_all: OrderedDict[int, Hook] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before a step of any optimizer."""
    return add_hook(_before_all, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after a step of any optimizer."""
    return add_hook(_after_all, hook)


class Hooked:
    """The hooks of one optimizer; ``step`` of every subclass calls them."""

    _opt_called: bool | None = None  # whether a step was made since a scheduler first asked
    # Of optimizers around another one, whose constructor never comes here.
    _step_pre: Any = MappingProxyType({})
    _step_post: Any = MappingProxyType({})

    def __init__(self) -> None:
        self._step_pre = OrderedDict()
        self._step_post = OrderedDict()
        self._saving: OrderedDict[int, Hook] = OrderedDict()
        self._saved: OrderedDict[int, Hook] = OrderedDict()
        self._loading: OrderedDict[int, Hook] = OrderedDict()
        self._loaded: OrderedDict[int, Hook] = OrderedDict()

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "step" in cls.__dict__:
            cls.step = _calling_hooks(cls.__dict__["step"])  # type: ignore[attr-defined]

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step.

        ``args`` begins with the optimizer. The hook returns None, or new ``(args, kwargs)``.
        """
        return add_hook(self._step_pre, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return add_hook(self._step_post, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before `state_dict`."""
        return _register(self._saving, hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after `state_dict`; it may return another one."""
        return _register(self._saved, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; it may return another one."""
        return _register(self._loading, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return _register(self._loaded, hook, prepend)


def changed_by(hooks: OrderedDict[int, Hook], optimizer: Any, value: Any) -> Any:
    """A state dict after hooks that may return another one."""
    for hook in list(hooks.values()):
        answer = hook(optimizer, value)
        value = value if answer is None else answer
    return value


def _register(hooks: OrderedDict[int, Hook], hook: Hook, prepend: bool) -> RemovableHandle:
    handle = add_hook(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _calling_hooks(step: Hook) -> Hook:
    @functools.wraps(step)
    def hooked(self: Hooked, *args: Any, **kwargs: Any) -> Any:
        if _before_all or self._step_pre:
            (self, *args), kwargs = _before(self, step, (self, *args), kwargs)
        result = step(self, *args, **kwargs)
        if self._opt_called is False:
            self._opt_called = True
        if self._step_post or _after_all:
            for hook in [*self._step_post.values(), *_after_all.values()]:
                hook(self, (self, *args), kwargs)
        return result

    hooked.hooked = True  # type: ignore[attr-defined]
    return hooked


def _before(self: Any, step: Hook, args: Any, kwargs: Any) -> tuple[Any, Any]:
    for hook in [*_before_all.values(), *self._step_pre.values()]:
        answer = hook(self, args, kwargs)
        if answer is None:
            continue
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise RuntimeError(
                f"{step} must return None or a tuple of (new_args, new_kwargs), but got {answer}."
            )
        args, kwargs = answer
    return args, kwargs
