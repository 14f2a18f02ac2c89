"""Errors that a kernel finds: it notes them in memory that the host reads without waiting for it.

A kernel cannot raise. It writes a record and goes on; the record is looked at wherever the host
waits for the GPU anyway (`Tensor.item`, `.cpu`, `synchronize`), and there the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_known: list[DeviceError] = []


class DeviceError:
    """A record of numbers: the first is set where a kernel found the error, the others describe it.

    Parameters
    ----------
    error : callable
        The exception, given the other numbers.
    """

    def __init__(self, error: Callable[..., Exception]) -> None:
        self.error = error
        self._records: dict[str, tuple[Any, int]] = {}
        _known.append(self)

    def address(self, backend: Any) -> int:
        """Where kernels of a backend write the record."""
        record = self._records.get(backend.type)
        if record is None:
            record = self._records[backend.type] = backend.host_record(4)
            record[0][...] = 0
        return record[1]

    def check(self) -> None:
        """Raise the error, if one was noted; once."""
        for memory, _ in self._records.values():
            if memory[0]:
                memory[0] = 0
                raise self.error(*memory[1:].tolist())


def check() -> None:
    """Raise the error that a kernel that has ended noted, if any did."""
    for fault in _known:
        fault.check()
