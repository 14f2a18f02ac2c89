"""What a worker process does: it takes tasks, reads batches and sends them."""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices.threads import set_num_threads
from lucid_gpu.ops.generator import manual_seed
from lucid_gpu.utils.data import transport
from lucid_gpu.utils.data.fetch import Reading

__all__ = ["Failure", "WorkerInfo", "get_worker_info"]

_PATIENCE = 5.0  # seconds between looks at whether the parent lives

inherited: set[Connection] = set()  # the parent's ends of all workers' pipes, for forked children


class WorkerInfo(NamedTuple):
    """What a worker process knows of itself.

    Attributes
    ----------
    id : int
        From 0.
    num_workers : int
    seed : int
        What the generators of this worker were seeded with.
    dataset : Dataset
        This process's copy.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def numpy_seed(base_seed: int, worker_id: int) -> list[int]:
    """What NumPy's global generator is seeded with in a worker: PyTorch's four numbers."""
    low, high = base_seed & 0xFFFFFFFF, base_seed >> 32
    entropy = np.random.SeedSequence([worker_id, low, high, 0])
    return [int(word) for word in entropy.generate_state(4)]


def get_worker_info() -> WorkerInfo | None:
    """Information about the current worker process of a `DataLoader`; None in other processes."""
    return _info


class Failure(NamedTuple):
    """An error, to be raised in another process."""

    kind: type[BaseException]
    text: str

    @classmethod
    def caught(cls, error: BaseException, where: str) -> Failure:
        text = f"Caught {type(error).__name__} {where}.\nOriginal {traceback.format_exc()}"
        try:  # a class that cannot be found by its name cannot be sent
            pickle.dumps(type(error))
        except Exception:
            return cls(RuntimeError, text)
        return cls(type(error), text)

    def error(self) -> BaseException:
        """The error, of its own type where that takes a message."""
        text: Any = _Lines(self.text) if issubclass(self.kind, KeyError) else self.text
        try:
            return self.kind(text)
        except Exception:
            return RuntimeError(self.text)


class _Lines(str):
    """A text whose repr, which a KeyError prints, is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self


class Start(NamedTuple):
    """Everything a worker needs to begin."""

    reading: Reading
    id: int
    num_workers: int
    base_seed: int
    worker_init_fn: Callable[[int], None] | None


def work(connection: Connection, start: Start) -> None:
    """The main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's KeyboardInterrupt ends us
    for other in inherited:
        other.close()
    set_num_threads(1)
    where = f"in DataLoader worker process {start.id}"
    broken: Failure | None = None
    try:
        _prepare(start)
    except Exception as error:
        broken = Failure.caught(error, where)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(
        target=_listen, args=(connection, tasks, os.getppid()), name="lucid-gpu-tasks", daemon=True
    ).start()
    current: int | None = None
    read: Any = None
    while (task := tasks.get()) is not None:
        epoch, number, indices = task
        outcome, value = "error", broken
        if broken is None:
            try:
                if epoch != current:
                    current, read = epoch, start.reading.open()
                outcome, value = "batch", read(indices)
            except Exception as error:
                ended = start.reading.iterable and isinstance(error, StopIteration)
                outcome = "end" if ended else "error"
                value = None if ended else Failure.caught(error, where)
        try:
            _answer(connection, (epoch, number, outcome), value, where)
        except OSError:  # the parent wants no more
            return
        value = None


def _prepare(start: Start) -> None:
    global _info
    seed = start.base_seed + start.id
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(numpy_seed(start.base_seed, start.id))
    _info = WorkerInfo(start.id, start.num_workers, seed, start.reading.dataset)
    if start.worker_init_fn is not None:
        start.worker_init_fn(start.id)


def _listen(connection: Connection, tasks: queue.SimpleQueue[Any], parent: int) -> None:
    """Always ready to take a task, so that the parent never waits to hand one out.

    If the parent dies, so does this process, whatever it is doing.
    """
    try:
        while True:
            while not connection.poll(_PATIENCE):
                if os.getppid() != parent:
                    os._exit(1)
            tasks.put(connection.recv())
    except (EOFError, OSError):
        tasks.put(None)
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _answer(connection: Connection, head: tuple[int, int, str], value: Any, where: str) -> None:
    try:
        transport.send(connection, head, value)
    except OSError:
        raise
    except Exception as error:  # it cannot be pickled
        failure = Failure.caught(error, f"{where}, sending a batch")
        transport.send(connection, (*head[:2], "error"), failure)
