"""A list of the kernels that ran inside a ``with`` block.

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
from typing import Any

from lucid_gpu.fusion.explain import Kernel
from lucid_gpu.launch.observers import LibraryCall, observers

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

    def begin(self, kernel: Any) -> None:
        """Nothing to note before a kernel."""

    def end(self, token: None, kernel: Any) -> None:
        """Note a kernel of this package's."""
        if not isinstance(kernel, LibraryCall):
            self.kernels.append(Kernel(kernel))

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
    """Record every kernel of this package that runs inside the block.

    Matrix products, which libraries compute, are listed by `profile` only.

    Yields
    ------
    Log
        Its ``kernels`` grow while the block runs; blocks may be nested.
    """
    log = Log()
    observers.append(log)
    try:
        yield log
    finally:
        observers.remove(log)
