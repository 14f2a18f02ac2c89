"""What ran: a record of every kernel launched inside a ``with`` block.

Examples
--------
>>> import lucid_gpu
>>> x = lucid_gpu.ones(4)
>>> with lucid_gpu.profiler.record() as log:
...     y = (x * 2 + 1).numpy()
>>> [kernel.ops for kernel in log.kernels]
[('mul', 'add')]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lucid_gpu.fusion.explain import Kernel
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.launch.observers import Launched, observers

__all__ = ["Kernel", "Log", "record"]


class Log:
    """The kernels of a `record` block.

    Attributes
    ----------
    kernels : list of Kernel
        In the order in which they ran, on whatever thread.
    """

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []

    def _add(self, plan: Plan | Launched) -> None:
        self.kernels.append(Kernel(plan))

    @property
    def bytes_read(self) -> int:
        """Bytes read by all kernels."""
        return sum(k.bytes_read for k in self.kernels)

    @property
    def bytes_written(self) -> int:
        """Bytes written by all kernels."""
        return sum(k.bytes_written for k in self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __str__(self) -> str:
        rows = [("kernel", "shape", "read", "written")]
        rows += [
            (k.name, "x".join(map(str, k.shape)), str(k.bytes_read), str(k.bytes_written))
            for k in self.kernels
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                word.ljust(n) if i < 2 else word.rjust(n)
                for i, (word, n) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join(lines)


@contextmanager
def record() -> Iterator[Log]:
    """Record every kernel, fused or hand-written, that runs inside the block.

    Yields
    ------
    Log
        Its ``kernels`` grow while the block runs; blocks may be nested.
    """
    log = Log()
    observe = log._add
    observers.append(observe)
    try:
        yield log
    finally:
        observers.remove(observe)
