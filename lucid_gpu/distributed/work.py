"""What an operation between ranks gives back while it is under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from lucid_gpu.distributed.engines import Done
from lucid_gpu.distributed.errors import DistBackendError

__all__ = ["Future", "Work"]

_SPIN = 200e-6  # seconds to test without a pause; below, a pause would cost more than the wait


class Future:
    """The value of work that is under way."""

    def __init__(self, wait: Callable[[], Any], done: Callable[[], bool]) -> None:
        self._wait, self._done = wait, done

    def wait(self) -> Any:
        """The value, waited for."""
        return self._wait()

    value = wait

    def done(self) -> bool:
        """Whether the value is there."""
        return self._done()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of ``callback(self)``, which is called once, when first waited for."""
        found: list[Any] = []

        def value() -> Any:
            if not found:
                self.wait()
                found.append(callback(self))
            return found[0]

        return Future(value, self.done)


def completed(value: Any) -> Future:
    """A future whose value is there."""
    return Future(lambda: value, lambda: True)


class Work:
    """An operation between ranks that is under way.

    Parameters
    ----------
    what : str
        For the sentence of a time-out.
    begun : list of Done
    timeout : timedelta
    finish : callable, optional
        Brings results to the tensors; called once.
    results : list of Tensor
    keep
        What must live until it is done.
    """

    def __init__(
        self,
        what: str,
        begun: Sequence[Done],
        timeout: timedelta,
        finish: Callable[[], None] | None = None,
        results: Sequence[Any] = (),
        keep: Any = None,
    ) -> None:
        self._what, self._begun, self._timeout = what, list(begun), timeout
        self._finish, self._results, self._keep = finish, list(results), keep
        self._complete = False

    def is_completed(self) -> bool:
        """Whether it is done; never waits."""
        if self._complete:
            return True
        tested = [done.test() for done in self._begun]  # each: a test lets MPI go on
        self._complete = all(tested)
        if self._complete:
            if self._finish is not None:
                self._finish()
            self._finish = self._keep = None
        return self._complete

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is done: True.

        Raises
        ------
        DistBackendError
            After ``timeout``, by default the group's.
        """
        seconds = (timeout or self._timeout).total_seconds()
        start, pause = time.monotonic(), 20e-6
        while not self.is_completed():
            waited = time.monotonic() - start
            if waited > seconds:
                raise DistBackendError(
                    f"{self._what} timed out after {seconds:g} s: not all ranks of the group came"
                )
            if waited > _SPIN:
                time.sleep(pause)
                pause = min(1e-3, 1.2 * pause)
        return True

    def synchronize(self) -> None:
        """`wait`."""
        self.wait()

    def is_success(self) -> bool:
        """Whether it is done."""
        return self.is_completed()

    def exception(self) -> None:
        """None: what goes wrong raises in `wait`."""

    def result(self) -> list[Any]:
        """The tensors it wrote."""
        return self._results

    def source_rank(self) -> int:
        """The rank in the group that a message came from."""
        return self._begun[0].source

    def get_future(self) -> Future:
        """The tensors it writes, as a `Future`."""

        def value() -> list[Any]:
            self.wait()
            return self._results

        return Future(value, self.is_completed)
