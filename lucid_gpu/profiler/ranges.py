"""Names for parts of a program: in profiles, and on the time line of NVIDIA's profilers."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.launch.observers import observers

__all__ = ["emit_nvtx", "record_function"]


class Listener(Protocol):
    """Who is told when a range opens and closes."""

    def open(self, name: str) -> None: ...
    def close(self) -> None: ...


listeners: list[Listener] = []


def _profiler_enabled() -> bool:
    """Whether a profile is open."""
    return bool(listeners)


class record_function:
    """A name for what runs inside a block or, as a decorator, a function.

    Parameters
    ----------
    name : str

    Notes
    -----
    Kernels belong to the range in which they run: a pending value that is read after the block is
    computed after it.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.profiler import profile, record_function
    >>> with profile() as prof:
    ...     with record_function("loss"):
    ...         loss = (lucid_gpu.ones(8) * 2).sum().item()
    >>> [row.key for row in prof.key_averages() if row.is_range]
    ['loss']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name if args is None else f"{name}: {args}"
        self._notified = threading.local()

    def __enter__(self) -> record_function:
        notified = tuple(listeners)
        for listener in notified:
            listener.open(self.name)
        self._notified.__dict__.setdefault("stack", []).append(notified)
        return self

    def __exit__(self, *exception: Any) -> None:
        for listener in reversed(self._notified.stack.pop()):
            listener.close()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def named(*arguments: Any, **keywords: Any) -> Any:
            with record_function(self.name):
                return function(*arguments, **keywords)

        return named


class _Nvtx:
    """Kernels and named ranges as ranges of NVTX."""

    def __init__(self) -> None:
        nvtx = backend(device("cuda")).xp.cuda.nvtx
        self.push, self.pop = nvtx.RangePush, nvtx.RangePop

    def begin(self, kernel: Any) -> None:
        self.push(kernel.name)

    def end(self, token: None, kernel: Any) -> None:
        self.pop()

    def open(self, name: str) -> None:
        self.push(name)

    def close(self) -> None:
        self.pop()


@contextlib.contextmanager
def emit_nvtx(enabled: bool = True, record_shapes: bool = False) -> Iterator[None]:
    """Show each kernel's launch and each `record_function` to NVIDIA's profilers.

    Run the program under ``nsys profile --trace cuda,nvtx``.

    Raises
    ------
    RuntimeError
        If there is no GPU.
    """
    if not enabled:
        yield
        return
    nvtx = _Nvtx()
    observers.append(nvtx)
    listeners.append(nvtx)
    try:
        yield
    finally:
        listeners.remove(nvtx)
        observers.remove(nvtx)
