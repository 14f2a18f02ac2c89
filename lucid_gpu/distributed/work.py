"""What an operation between ranks gives back while it is under way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast

from lucid_gpu.compat.future import Future
from lucid_gpu.distributed.engines import Done, Ordered
from lucid_gpu.distributed.errors import DistBackendError
from lucid_gpu.distributed.watch import Agreement, Call, Waiting, Watch

__all__ = ["StreamWork", "Work"]

_LOOK = 0.05  # seconds between two looks at what other ranks tell
_PAUSE = 100e-6  # seconds: between two tests parts of a large message wait to be moved on
_LATE = 10.0  # seconds after which another thread looks after work that is on a stream
_BRISK = 5e-3  # seconds of testing without a pause, other processes let in between two tests
_CROWDED = 1e-3  # seconds after which a processor is given back that others need: pauses then


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
    agreement : Agreement, optional
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
        agreement: Agreement | None = None,
    ) -> None:
        self._call, self._begun, self._timeout = call, list(begun), timeout
        self._finish, self._results = finish, list(results)
        self._watch, self._agreement = watch, agreement
        if agreement is not None:
            agreement.begins = self._begun
        else:
            for done in self._begun:
                done.begin()
        self._complete = self._delivered = self._raised = False
        self._future: Future | None = None
        self._failed: DistBackendError | None = None

    def is_completed(self) -> bool:
        """Whether it is done; never waits."""
        if not self._passed():
            return False
        self._deliver()
        return True

    def settled(self) -> bool:
        """Whether the group may forget it.

        Callbacks of its future wait for somebody who waits: they may make calls, whose order must
        be the same on all ranks.
        """
        if self._raised:
            return True
        if self._passed() and (self._future is None or not self._future.has_callbacks()):
            self._deliver()
        return self._delivered

    def _passed(self) -> bool:
        if self._complete:
            return True
        if self._watch is not None:
            self._watch.advance()
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
        self._complete = self._agreement is None and all(tested)
        return self._complete

    def _deliver(self) -> None:
        """Bring results to the tensors, once."""
        if self._delivered:
            return
        self._delivered = True
        if self._finish is not None:
            self._finish()
            self._finish = None
        if self._future is not None:
            self._future.set_result(self._results)

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
            for done in self._begun:
                done.withdraw()
            self._raised = True
            _abandoned.append(self)
            raise

    def _wait(self, seconds: float) -> bool:
        start, pause, looked = time.monotonic(), 20e-6, 0.0
        waiting, brisk = None, _BRISK
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
            if waited < brisk:
                os.sched_yield()
                if time.monotonic() - start - waited > _CROWDED:
                    brisk = 0.0
                continue
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
            if self._delivered:
                self._future.set_result(self._results)
        return self._future

    def _advance(self, wait: bool) -> None:
        self.wait() if wait else self.is_completed()


class StreamWork(Work):
    """An operation on a stream of a GPU: `wait` makes the current stream wait, the host goes on."""

    _since = 0.0  # these two are for the thread that looks after it
    _waiting: Waiting | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let the current stream wait; with ``timeout`` the host waits: True."""
        if timeout is not None:
            return super().wait(timeout)
        for done in cast("list[Ordered]", self._begun):
            done.follow()
        self._deliver()
        return True

    def settled(self) -> bool:
        """Whether it is done; results are delivered by who waits, on the stream that waits."""
        return self._passed()

    def agreed(self) -> bool:
        """Whether all ranks have made this call; raises where one made another."""
        agreement = self._agreement
        return agreement is None or agreement.test()

    def look(self, now: float) -> bool:
        """For a thread that looks after it once it is late: whether it is done.

        Raises
        ------
        DistBackendError
            If it has timed out, a rank made another call, has left or has failed.
        """
        self._since = self._since or now
        waited, seconds = now - self._since, self._timeout.total_seconds()
        if self._complete or waited < min(_LATE, seconds / 2):
            return self._complete
        if self.agreed() and all(done.test() for done in self._begun):
            return True
        watch = self._watch
        assert watch is not None
        self._waiting = self._waiting or Waiting(watch, self._call)
        self._waiting.look(waited, seconds)
        if waited > seconds:
            raise DistBackendError(
                f"{self._call} timed out after {seconds:g} s on rank {watch.rank}: "
                f"{self._waiting.missing()}"
            )
        return False
