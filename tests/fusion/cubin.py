"""What a compiled kernel takes of a multiprocessor, read from its ELF file."""

from __future__ import annotations

import struct
from typing import NamedTuple

from lucid_gpu.fusion.cuda_source import complete

from .nvrtc import module

_REGISTERS, _FRAME = 0x2F, 0x11  # attributes of .nv.info
_VALUE = 4  # the format of an attribute with its value behind it


class Resources(NamedTuple):
    """Of one kernel.

    Attributes
    ----------
    registers : int
        Of a thread.
    frame : int
        Bytes of local memory of a thread: spilled registers, and arrays indexed at run time.
    """

    registers: int
    frame: int

    @property
    def threads(self) -> int:
        """That a multiprocessor of 64 K registers runs at once, in blocks of 256."""
        of_block = -(-self.registers // 8) * 8 * 256  # registers are given by eights
        return min(65536 // of_block, 8) * 256


def resources(source: str, architecture: int = 90) -> Resources:
    """Compile a source of one kernel, and read what it takes."""
    nvrtc = module()
    program = nvrtc.createProgram(complete(source), "kernel.cu", [], [])
    options = [f"-arch=sm_{architecture}", "-std=c++17", "-ftz=true"]
    nvrtc.compileProgram(program, options)
    found = dict(_attributes(bytes(nvrtc.getCUBIN(program))))
    return Resources(found[_REGISTERS], found[_FRAME])


def _attributes(elf: bytes) -> list[tuple[int, int]]:
    """The attributes of .nv.info that hold a symbol's number and a value."""
    (headers,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, headers + i * size) for i in range(count)]
    texts = sections[names][4]
    found = []
    for name, _, _, _, start, length, *_ in sections:
        first = texts + name
        if elf[first : elf.index(b"\0", first)] != b".nv.info":
            continue
        at = start
        while at < start + length:
            form, attribute, bytes_behind = struct.unpack_from("<BBH", elf, at)
            if form == _VALUE and bytes_behind == 8:
                found.append((attribute, struct.unpack_from("<II", elf, at + 4)[1]))
            at += 4 + (bytes_behind if form == _VALUE else 0)
    return found
