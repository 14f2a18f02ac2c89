"""A small team of threads; `lucid_gpu.devices.blocks` hands them blocks of one kernel."""

from __future__ import annotations

import contextvars
import functools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class _Quiet(threading.local):
    """A context in which NumPy says nothing of overflow or 1/0, as on a GPU; one a thread.

    Entering it costs a tenth of `numpy.errstate`.
    """

    def __init__(self) -> None:
        self.context = contextvars.Context()
        self.context.run(np.seterr, all="ignore")
        self.busy = False


_quiet = _Quiet()


def run_quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function(*args)`` without floating point warnings."""
    state = _quiet
    if state.busy:  # already inside, on this thread
        return function(*args)
    state.busy = True
    try:
        return state.context.run(function, *args)
    finally:
        state.busy = False


def quietly(function: F) -> F:
    """A function that is called without floating point warnings; with arguments in order."""
    call: Any = functools.partial(run_quietly, function)
    return cast(F, functools.update_wrapper(call, function))


def processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Order:
    """Work for helpers: a function that takes blocks until none is left."""

    def __init__(self, work: Callable[[], None], helpers: int) -> None:
        self._places = [work] * helpers  # a helper takes one out: `pop` is one step
        self._helpers = helpers
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()

    def help(self) -> None:
        """A helper's part."""
        try:
            work = self._places.pop()
        except IndexError:  # done without us
            return
        try:
            run_quietly(work)
        except BaseException as raised:
            self._done.put(raised)
        else:
            self._done.put(None)

    def end(self) -> BaseException | None:
        """Wait for those who have begun; others shall not. Returns the first error, or None.

        So nobody waits for a helper whose processor sleeps, or serves another program.
        """
        error = None
        while self._places:
            try:
                self._places.pop()
            except IndexError:  # a helper was faster
                break
            self._helpers -= 1
        while self._helpers:
            error = self._done.get() or error
            self._helpers -= 1
        return error


class Team:
    """``count - 1`` helpers beside the calling thread, started when first needed."""

    def __init__(self, count: int) -> None:
        self.count = max(count, 1)
        self._orders: SimpleQueue[Any] = SimpleQueue()
        self._started = 0
        self._lock = threading.Lock()

    def run(self, work: Callable[[], None]) -> None:
        """Call ``work`` on the threads of the team and wait for them; the first error is raised.

        ``work`` takes blocks until none is left. Helpers that have not begun by then never do.
        """
        order = self.begin(work)
        error: BaseException | None = None
        try:
            run_quietly(work)
        except BaseException as raised:
            error = raised
        error = order.end() or error
        if error is not None:
            raise error

    def begin(self, work: Callable[[], None]) -> Order:
        """Have the helpers call ``work`` while the caller goes on."""
        self._start()
        order = Order(work, self.count - 1)
        for _ in range(self.count - 1):
            self._orders.put(order)
        return order

    def _start(self) -> None:
        if self._started >= self.count - 1:
            return
        with self._lock:
            while self._started < self.count - 1:
                self._started += 1
                name = f"lucid-gpu-{self._started}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._orders.get().help()


def _wanted() -> int:
    ours = os.environ.get("LUCID_NUM_THREADS")
    if ours and not ours.isdigit():
        raise ValueError(f"LUCID_NUM_THREADS is a number of threads; got {ours!r}")
    wish = ours or os.environ.get("OMP_NUM_THREADS")  # which may be a list
    return int(wish) if wish and wish.isdigit() else processors()


team = Team(_wanted())


def set_num_threads(count: int) -> None:
    """Use ``count`` threads for elementwise work on the CPU.

    RuntimeError for less than one, ValueError for more than an int holds.
    """
    global team
    _require_count("set_num_threads", count)
    team = Team(count)


def get_num_threads() -> int:
    """Threads used for elementwise work on the CPU."""
    return team.count


def _require_count(name: str, count: Any) -> None:
    if not hasattr(count, "__index__"):
        raise RuntimeError(f"{name} expects an int, but got {type(count).__name__}")
    if count >= 1 << 31:
        raise ValueError(f"Overflow when unpacking long: {name} got {count}")
    if count < 1:
        raise RuntimeError(f"{name} expects a positive integer, got {count}")


_between_ops = 1


def set_num_interop_threads(count: int) -> None:
    """Keep a number for `get_num_interop_threads`: ops run one after another in any case.

    RuntimeError for less than one, ValueError for more than an int holds.
    """
    global _between_ops
    _require_count("set_num_interop_threads", count)
    _between_ops = count


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was told, or 1."""
    return _between_ops


def _after_fork() -> None:
    global team
    team = Team(team.count)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
