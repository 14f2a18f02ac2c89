"""Worker processes, and the batches they send, in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait
from typing import Any

from lucid_gpu.utils.data import transport
from lucid_gpu.utils.data.fetch import Reading
from lucid_gpu.utils.data.worker import Start, inherited, work

__all__ = ["Workers"]

_PATIENCE = 5.0  # seconds between looks at whether the workers live
_GRACE = 2.0  # seconds for a worker to end by itself, should it be reading a sample


class _Worker:
    """A process, our end of its pipe, and how many tasks it has."""

    def __init__(self, context: Any, start: Start) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        inherited.add(self.connection)
        self.id, self.waiting, self.ended = start.id, 0, False
        self.process = context.Process(target=work, args=(theirs, start), daemon=True)
        try:
            self.process.start()
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()

    def close(self) -> None:
        inherited.discard(self.connection)
        self.connection.close()


class Workers:
    """Processes that read batches of a dataset, each task done by one of them.

    Parameters
    ----------
    reading : Reading
    count, prefetch : int
        How many processes, and how many tasks each is given ahead.
    base_seed : int
        Worker ``i`` is seeded with ``base_seed + i``.
    timeout : float
        Seconds to wait for a batch; 0 waits for ever.
    in_order : bool
        Batches come in the order of their tasks, not of their arrival.
    """

    def __init__(
        self,
        reading: Reading,
        count: int,
        prefetch: int,
        base_seed: int,
        timeout: float,
        in_order: bool,
        worker_init_fn: Any,
        context: Any,
    ) -> None:
        self.prefetch, self.timeout, self.in_order = prefetch, timeout, in_order
        self.workers: list[_Worker] = []
        self.epoch = 0
        # It holds no reference to `self`, so that dropping an iterator ends its processes.
        self.close = weakref.finalize(self, _end, self.workers, os.getpid())
        try:
            for i in range(count):
                start = Start(reading, i, count, base_seed, worker_init_fn)
                self.workers.append(_Worker(_context(context), start))
        except BaseException:
            self.close()
            raise

    def begin(self, tasks: Iterable[Any]) -> None:
        """Hand out the first tasks of a new pass; what is left of an earlier one is dropped."""
        self.epoch += 1
        self.tasks: Iterator[Any] | None = iter(tasks)
        self.sent = self.yielded = 0  # tasks handed out, batches handed on
        self.owner: dict[int, _Worker] = {}
        self.arrived: dict[int, tuple[str, Any]] = {}
        for worker in self.workers:
            worker.ended = False
        for _ in range(self.prefetch * len(self.workers)):
            self._hand_out()

    def next(self) -> Any:
        """The next batch.

        Raises
        ------
        StopIteration
            After the last one.
        RuntimeError
            For a worker that died, and after the timeout.
        Exception
            What a worker raised, with its traceback in the message.
        """
        deadline = time.monotonic() + self.timeout if self.timeout else None
        while True:
            number = self._ready()
            if number is not None:
                break
            if not self.owner:
                raise StopIteration
            try:
                self._receive(deadline)
            except BaseException:
                for worker in self.workers:
                    worker.process.terminate()
                self.close()
                raise
        outcome, value_of = self.arrived.pop(number)
        self._hand_out()
        value = value_of()
        if outcome == "error":
            raise value.error()
        return value

    def _ready(self) -> int | None:
        """The number of a batch that can be handed on now."""
        if not self.in_order:
            return next(iter(self.arrived), None)
        while self.yielded < self.sent:
            if self.yielded in self.arrived:
                self.yielded += 1
                return self.yielded - 1
            if self.yielded in self.owner:
                return None
            self.yielded += 1  # its worker's stream had ended
        return None

    def _hand_out(self) -> None:
        """Give the next task to the next worker in turn, if there are both."""
        if self.tasks is None:
            return
        count = len(self.workers)
        turn = [self.workers[(self.sent + i) % count] for i in range(count)]
        turn = [w for w in turn if not w.ended]
        if not self.in_order:
            turn.sort(key=lambda w: w.waiting)
        if not turn:
            return
        try:
            task = next(self.tasks)
        except StopIteration:
            self.tasks = None
            return
        worker = turn[0]
        self.owner[self.sent] = worker
        worker.waiting += 1
        with contextlib.suppress(OSError):  # it is dead: waiting for the batch raises
            worker.connection.send((self.epoch, self.sent, task))
        self.sent += 1

    def _receive(self, deadline: float | None) -> None:
        """Wait for one message of a worker."""
        while True:
            at_work = [w for w in self.workers if w.waiting]
            rest = _PATIENCE if deadline is None else deadline - time.monotonic()
            if rest <= 0:
                raise RuntimeError(f"DataLoader timed out after {self.timeout:g} seconds")
            things = [w.connection for w in at_work] + [w.process.sentinel for w in at_work]
            ready = wait(things, min(rest, _PATIENCE))
            for worker in at_work:
                if worker.connection in ready and self._take(worker):
                    return
            self._look_for_the_dead(at_work)

    def _take(self, worker: _Worker) -> bool:
        """Read a message; False where the worker had no more to say."""
        try:
            (epoch, number, outcome), value_of = transport.receive(worker.connection)
        except (EOFError, OSError):
            worker.process.join(_PATIENCE)
            if worker.process.is_alive():
                raise
            return False
        worker.waiting -= 1
        if epoch == self.epoch:
            del self.owner[number]
            if outcome == "end":
                worker.ended = True
                self._hand_out()
            else:
                self.arrived[number] = outcome, value_of
        return True

    def _look_for_the_dead(self, workers: list[_Worker]) -> None:
        dead = [w.process for w in workers if not w.process.is_alive()]
        if dead:
            pids = ", ".join(str(p.pid) for p in dead)
            how = "; ".join(_death(p.exitcode) for p in dead)
            raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly: {how}")


def _context(wanted: Any) -> Any:
    return multiprocessing.get_context(wanted) if isinstance(wanted, (str, type(None))) else wanted


def _death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"it left with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"it was killed by {name}" + (
        ", as happens when memory runs out" if name == "SIGKILL" else ""
    )


def _end(workers: list[_Worker], owner: int) -> None:
    """Close the pipes, which tells the workers to leave, and see that they do."""
    if os.getpid() != owner:  # a forked child's copy
        return
    for worker in workers:
        worker.close()
    deadline = time.monotonic() + _GRACE
    for step in (None, "terminate", "kill"):
        for worker in workers:
            if step is not None and worker.process.is_alive():
                getattr(worker.process, step)()
        for worker in workers:
            worker.process.join(max(deadline - time.monotonic(), 1.0 if step else 0.0))
    workers.clear()
