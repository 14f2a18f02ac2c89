"""What an operation between ranks gives back while it is under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from lucid_gpu.compat.future import Future
from lucid_gpu.distributed.engines import Done
from lucid_gpu.distributed.errors import DistBackendError
from lucid_gpu.distributed.watch import Call, Waiting, Watch

__all__ = ["Work"]

_LOOK = 0.05  # seconds between two looks at what other ranks tell
_PAUSE = 100e-6  # seconds: between two tests parts of a large message wait to be moved on
_SPIN = 200e-6  # seconds to test without a pause; below, a pause would cost more than the wait


# Work that failed: MPI may write to its arrays for as long as the process lives.
_abandoned: list[Work] = []


class Work:
    """An operation between ranks that is under way.

    Parameters
    ----------
    call : Call
        What errors name.
    begun : list of Done
    timeout : timedelta
    finish : callable, optional
        Brings results to the tensors; called once.
    results : list of Tensor
    watch : Watch, optional
        Where other ranks say what they do.
    agreement : Done, optional
        Whether all ranks make this call.
    """

    def __init__(
        self,
        call: Call,
        begun: Sequence[Done],
        timeout: timedelta,
        finish: Callable[[], None] | None = None,
        results: Sequence[Any] = (),
        watch: Watch | None = None,
        agreement: Done | None = None,
    ) -> None:
        self._call, self._begun, self._timeout = call, list(begun), timeout
        self._finish, self._results = finish, list(results)
        self._watch, self._agreement = watch, agreement
        self._complete = False
        self._future: Future | None = None
        self._failed: DistBackendError | None = None

    def is_completed(self) -> bool:
        """Whether it is done; never waits."""
        if self._complete:
            return True
        # A rank that made another call is a better reason than what the engine says of it.
        if self._agreement is not None and self._agreement.test():
            self._agreement = None
        if self._failed is None:
            try:
                tested = [done.test() for done in self._begun]  # each: a test lets MPI go on
            except DistBackendError as error:
                self._failed = error
        if self._failed is not None:
            if self._agreement is None:
                raise self._failed
            return False
        if self._agreement is not None or not all(tested):
            return False
        self._complete = True
        if self._finish is not None:
            self._finish()
            self._finish = None
        if self._future is not None:
            self._future.set_result(self._results)
        return True

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is done: True.

        Raises
        ------
        DistBackendError
            After ``timeout``, by default the group's, and where a rank made another call, has left
            or has failed.
        """
        try:
            return self._wait((timeout or self._timeout).total_seconds())
        except BaseException:
            _abandoned.append(self)
            raise

    def _wait(self, seconds: float) -> bool:
        start, pause, looked = time.monotonic(), 20e-6, 0.0
        waiting = None
        while not self.is_completed():
            waited = time.monotonic() - start
            if waited > _LOOK and self._watch is not None:
                if waiting is None:
                    waiting = Waiting(self._watch, self._call)
                if waited - looked > _LOOK:
                    looked = waited
                    waiting.look(waited, seconds)
            if waited > seconds:
                here = "" if self._watch is None else f" on rank {self._watch.rank}"
                who = "not all ranks of the group came" if waiting is None else waiting.missing()
                raise DistBackendError(f"{self._call} timed out after {seconds:g} s{here}: {who}")
            if waited > _SPIN:
                time.sleep(pause)
                pause = min(_PAUSE if waited < _LOOK else 1e-3, 1.2 * pause)
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
        if self._future is None:
            self._future = Future(advance=self._advance)
            if self._complete:
                self._future.set_result(self._results)
        return self._future

    def _advance(self, wait: bool) -> None:
        self.wait() if wait else self.is_completed()
