"""Which thread compiles a kernel, and which threads wait for it.

A thread that needs a kernel compiles it, or waits for the thread that has begun to; kernels of
different sources compile side by side. Kernels that nothing waits for yet are queued for a few
background threads, which take the newest first. A thread that then needs a queued kernel compiles
it without waiting for the queue. With ``LUCID_COMPILE=wait`` nothing is compiled in the background
that could be waited for.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid_gpu.core.planning import made
from lucid_gpu.devices.threads import processors

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lucid_gpu.launch.launcher import Launcher

MODES = ("background", "wait")
MOST = 4  # threads in the background


class Text(NamedTuple):
    """What a kernel is compiled from.

    Attributes
    ----------
    name : str
        Of the ``extern "C"`` function.
    source : str
        CUDA C, which may include files of `kernels/`.
    cooperative : bool
        Threads of a block wait for each other.
    contract : bool
        A product and a sum may become one fused multiply-add, which rounds once. Generated kernels
        forbid it: their ops give the same bits whether they are compiled together or one by one.
    """

    name: str
    source: str
    cooperative: bool
    contract: bool = True


def _wish() -> str | None:
    wish = os.environ.get("LUCID_COMPILE") or None
    if wish not in (None, *MODES):
        raise ValueError(
            "LUCID_COMPILE is background (ops run one by one while a fused kernel compiles) or "
            f"wait (for every compilation); got {wish!r}"
        )
    return wish


class setting:
    """What ``LUCID_COMPILE`` said when this was imported."""

    mode = _wish()


@contextlib.contextmanager
def compile_mode(mode: str) -> Iterator[None]:
    """One of `MODES`, for all threads."""
    assert mode in MODES
    before, setting.mode = setting.mode, mode
    try:
        yield
    finally:
        setting.mode = before


def in_background(launcher: Launcher) -> bool:
    """Whether a launcher's fused kernels compile while something else runs."""
    return (setting.mode or launcher.mode) == "background"


# --- kernels ------------------------------------------------------------------------------------


def compiled(launcher: Launcher, text: Text) -> Any:
    """The kernel: compiled by this thread, or by one that is waited for."""
    future, _ = _asked(launcher, text, None)
    _build(launcher, text, future)
    return _result(launcher, text, future)


def ready(launcher: Launcher, text: Text) -> bool:
    """Whether a kernel is compiled; an error that the background met is raised here."""
    future = launcher.kernels.get(text)
    if future is None or not future.done():
        return False
    _result(launcher, text, future)
    return True


def begin(launcher: Launcher, text: Text) -> None:
    """Have a kernel compiled in the background, unless that was asked for before."""
    future, new = _asked(launcher, text, "compiling in the background")
    if new:
        _tasks.append((launcher, text, future))
        _start()
        _bell.put(True)


def _asked(launcher: Launcher, text: Text, verb: str | None) -> tuple[Future[Any], bool]:
    """What the kernel will be, and whether this thread is the first that asks.

    It is counted here, where the user's line is on the stack.
    """
    future = launcher.kernels.get(text)
    if future is not None:
        return future, False
    from concurrent.futures import Future  # which imports logging: most programs on a CPU need none

    with _lock:
        future = launcher.kernels.get(text)
        if future is not None:
            return future, False
        future = launcher.kernels[text] = _unfinished[launcher, text] = Future()
    made("kernels", text, verb)
    return future, True


def _build(launcher: Launcher, text: Text, future: Future[Any]) -> None:
    """Compile, unless another thread has begun."""
    with _lock:
        if future.running() or future.done():
            return
        future.set_running_or_notify_cancel()
    try:
        with contextlib.nullcontext() if launcher.is_home() else launcher.at_home():
            function = launcher.build(text)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(function)
    _unfinished.pop((launcher, text), None)


def _result(launcher: Launcher, text: Text, future: Future[Any]) -> Any:
    try:
        return future.result()
    except BaseException:  # the next who asks tries again
        with _lock:
            if launcher.kernels.get(text) is future:
                del launcher.kernels[text]
        raise


# --- threads ------------------------------------------------------------------------------------

_lock = threading.RLock()
_unfinished: dict[tuple[Launcher, Text], Future[Any]] = {}
_tasks: deque[tuple[Launcher, Text, Future[Any]]] = deque()
_bell: SimpleQueue[bool] = SimpleQueue()  # True for each task, False for a thread that shall end
_threads: list[threading.Thread] = []


def _start() -> None:
    with _lock:
        if not _threads:
            atexit.register(_end)  # now, so that it runs before what CuPy has registered
        if len(_threads) < min(MOST, processors()):
            name = f"lucid-gpu-compiler-{len(_threads) + 1}"
            # A daemon, since Python waits for other threads before it says that it ends.
            thread = threading.Thread(target=_serve, args=(_bell, _tasks), name=name, daemon=True)
            _threads.append(thread)
            thread.start()


def _serve(bell: SimpleQueue[bool], tasks: deque[Any]) -> None:
    while bell.get():
        try:
            launcher, text, future = tasks.pop()
        except IndexError:  # the program ends
            continue
        _build(launcher, text, future)


def _end() -> None:
    """What is queued is dropped. What has begun is waited for: no compiler can be interrupted."""
    _tasks.clear()
    for _ in _threads:
        _bell.put(False)
    for thread in _threads:
        thread.join()
    _threads.clear()


def _after_fork() -> None:
    """In a child that has none of these threads: what they had begun is asked for anew."""
    global _lock, _bell, _tasks
    _lock, _bell, _tasks = threading.RLock(), SimpleQueue(), deque()
    _threads.clear()
    for launcher, text in _unfinished:
        launcher.kernels.pop(text, None)
    _unfinished.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
