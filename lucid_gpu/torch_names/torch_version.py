"""`torch.torch_version` and, after `install_as_torch`, `torch.version`."""

from __future__ import annotations

from typing import Any

from lucid_gpu import version as _own

__all__ = ["TorchVersion"]

STANDS_FOR = "2.13.0"  # the PyTorch whose names and behavior this package has


class TorchVersion(str):
    """A version that compares with others by numbers, as PyTorch's does."""

    __slots__ = ()

    def _numbers(self) -> tuple[int, ...]:
        return _numbers(self)

    def __lt__(self, other: Any) -> bool:
        return self._numbers() < _numbers(other)

    def __le__(self, other: Any) -> bool:
        return self._numbers() <= _numbers(other)

    def __gt__(self, other: Any) -> bool:
        return self._numbers() > _numbers(other)

    def __ge__(self, other: Any) -> bool:
        return self._numbers() >= _numbers(other)

    __eq__ = str.__eq__
    __hash__ = str.__hash__


def _numbers(version: Any) -> tuple[int, ...]:
    """The release of a version: (2, 13, 0) of "2.13.0+cpu"."""
    parts = version if isinstance(version, tuple) else str(version).partition("+")[0].split(".")
    numbers = []
    for part in parts:
        digits = "".join(c for c in str(part) if c.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    while numbers and numbers[-1] == 0:  # 2.0 is 2.0.0
        numbers.pop()
    return tuple(numbers)


__version__ = TorchVersion(f"{STANDS_FOR}+lucid{_own.__version__}")
debug, git_version, hip, xpu = False, "", _own.hip, None


def __getattr__(name: str) -> str | None:
    """``version.cuda``, as of `lucid_gpu.version`."""
    return _own.__getattr__(name)
