"""`torch.futures`: values that come later."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from lucid_gpu.compat.future import Future

__all__ = ["Future", "collect_all", "wait_all"]


def collect_all(futures: Sequence[Future]) -> Future:
    """A future that is done when all of these are; its value is their list."""

    def advance(wait: bool) -> None:
        for future in futures:
            future.advance(wait)

    result = Future(advance=advance)
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
