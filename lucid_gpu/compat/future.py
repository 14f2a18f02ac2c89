"""Values that come later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import GenericAlias
from typing import Any

__all__ = ["Future"]


class Future:
    """A value that somebody sets; callbacks run in the thread that sets it.

    Work between processes only goes on while somebody looks: `advance` is called with whether to
    wait by all who ask for the value, and sets it when the work is done.
    """

    def __init__(
        self, *, devices: Any = None, advance: Callable[[bool], object] | None = None
    ) -> None:
        self._advance = advance
        self._ready = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future], Any]] = []

    def __class_getitem__(cls, value: object) -> GenericAlias:
        """``Future[Tensor]``, of annotations that are evaluated."""
        return GenericAlias(cls, value)

    def advance(self, wait: bool) -> None:
        """Let the work go on that sets the value, or wait for it."""
        if not self._done and self._advance is not None:
            self._advance(wait)

    def done(self) -> bool:
        """Whether the value is there."""
        self.advance(False)
        return self._done

    def wait(self) -> Any:
        """Wait for the value; raise what was set as an exception."""
        self.advance(True)
        with self._ready:
            self._ready.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> Any:
        """The value; RuntimeError if it is not there yet."""
        if not self._done:
            raise RuntimeError("the future has no value yet: call wait()")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result: Any) -> None:
        """Set the value, and run the callbacks.

        RuntimeError if it is set already.
        """
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Let `wait` raise an exception; AssertionError for anything else."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._ready:
            if self._done:
                raise RuntimeError("the future is completed: its value is set once")
            self._value, self._error, self._done = value, error, True
            self._ready.notify_all()
        for callback in self._callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call a function with the future when the value is there."""
        with self._ready:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def has_callbacks(self) -> bool:
        """Whether setting the value calls anything."""
        return bool(self._callbacks)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what a function makes of this one."""
        result = Future(advance=self._advance)

        def run(done: Future) -> None:
            try:
                value = callback(done)
            except Exception as error:  # which wait() of the second future raises
                result.set_exception(error)
            else:
                result.set_result(value)

        self.add_done_callback(run)
        return result
