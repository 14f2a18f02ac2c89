"""NVRTC's interface; what it makes of a source is that source, compiled as C++."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lucid_gpu.launch import host
from lucid_gpu.launch.source import is_cooperative

_programs: dict[int, list[str]] = {}  # name, source and log
_handles = itertools.count(1)  # threads compile side by side


class NVRTCError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"NVRTC_ERROR_COMPILATION ({status})")


def getVersion() -> tuple[int, int]:
    return 12, 9


def getSupportedArchs() -> list[int]:
    return [75, 80, 86, 89, 90, 100]


def createProgram(src: str, name: str, headers: Sequence[str], include_names: Sequence[str]) -> int:
    handle = next(_handles)
    _programs[handle] = [name.removesuffix(".cu"), src, ""]
    return handle


def compileProgram(prog: int, options: Sequence[str]) -> None:
    if not any(option.startswith("-arch=") for option in options):
        raise NVRTCError(5)
    name, source, _ = _programs[prog]
    try:
        host.build(name, source, is_cooperative(source))
    except RuntimeError as error:
        _programs[prog][2] = str(error)
        raise NVRTCError(6) from None


def getCUBIN(prog: int) -> bytes:
    return _programs[prog][1].encode()


def getProgramLog(prog: int) -> str:
    return _programs[prog][2]


def destroyProgram(prog: int) -> None:
    del _programs[prog]
