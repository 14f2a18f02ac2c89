"""Grad mode, one state a thread."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class _State(threading.local):
    grad = True


state = _State()


def is_grad_enabled() -> bool:
    """Whether ops on this thread are recorded."""
    return state.grad


class _Mode:
    """A context manager that is also a decorator, with and without parentheses."""

    _value: bool

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        if callable(function):
            self.__init__()  # type: ignore[misc]
            return self(function)
        return self

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(state.grad)
        state.grad = self._value

    def __exit__(self, *_: object) -> None:
        state.grad = self._before.pop()

    def _again(self) -> _Mode:
        return type(self)()

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return cast(F, _wrap_generator(self._again, function))

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return cast(F, wrapped)


def _wrap_generator(mode: Callable[[], _Mode], function: Callable[..., Any]) -> Any:
    """Run each stretch of a generator under the mode, and the caller's code without it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        try:
            with mode():
                answer = next(generator)
            while True:
                try:
                    request = yield answer
                except GeneratorExit:
                    with mode():
                        generator.close()
                    raise
                except BaseException as error:
                    with mode():
                        answer = generator.throw(error)
                else:
                    with mode():
                        answer = generator.send(request)
        except StopIteration as end:
            return end.value

    return wrapped


class no_grad(_Mode):
    """Do not record ops: ``with no_grad():`` or ``@no_grad()``."""

    _value = False


class enable_grad(_Mode):
    """Record ops, inside `no_grad`: ``with enable_grad():`` or ``@enable_grad()``."""

    _value = True


class set_grad_enabled(_Mode):
    """Switch recording on or off, at once, and back at the end of a ``with`` block."""

    def __new__(cls, mode: bool) -> Any:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._value = bool(mode)
        self._entered = state.grad
        state.grad = self._value

    def _again(self) -> _Mode:
        return set_grad_enabled(self._value)

    def __enter__(self) -> None:
        self._before.append(self._entered)
        state.grad = self._value

    def __call__(self, function: F) -> F:
        state.grad = self._entered  # a decorator switches only inside the function
        return super().__call__(function)
