"""`torch.futures`: values that come later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that somebody sets; callbacks run in the thread that sets it."""

    def __init__(self, *, devices: Any = None) -> None:
        self._ready = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future], Any]] = []

    def done(self) -> bool:
        """Whether the value is there."""
        return self._done

    def wait(self) -> Any:
        """Wait for the value; raise what was set as an exception."""
        with self._ready:
            self._ready.wait_for(self.done)
        return self.value()

    def value(self) -> Any:
        """The value; RuntimeError where it is not there yet."""
        if not self._done:
            raise RuntimeError("the future has no value yet: call wait()")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result: Any) -> None:
        """Set the value, and run the callbacks.

        RuntimeError where it is set already.
        """
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Let `wait` raise an exception."""
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

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what a function makes of this one."""
        result = Future()

        def run(done: Future) -> None:
            try:
                value = callback(done)
            except Exception as error:  # which wait() of the second future raises
                result.set_exception(error)
            else:
                result.set_result(value)

        self.add_done_callback(run)
        return result


def collect_all(futures: Sequence[Future]) -> Future:
    """A future that is done when all of these are; its value is their list."""
    result = Future()
    left = len(futures)
    lock = threading.Lock()

    def one(_: Future) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            result.set_result(list(futures))

    for future in futures:
        future.add_done_callback(one)
    if not futures:
        result.set_result([])
    return result


def wait_all(futures: Sequence[Future]) -> list[Any]:
    """The values of all."""
    return [future.wait() for future in futures]
