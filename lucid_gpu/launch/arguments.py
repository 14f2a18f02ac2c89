"""The memory a kernel's arguments are read from, packed once a launch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from lucid_gpu.dtypes import dtype

SLOT = 16  # bytes an argument has in the argument block: every type is aligned there

LETTERS = {
    "bool": "?",
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float16": "e",
    "bfloat16": "H",
    "float32": "f",
    "float64": "d",
    "complex64": "ff",
    "complex128": "dd",
}


def number_fields(value: Any, d: dtype) -> tuple[Any, ...]:
    """A Python number as `struct` packs it: integers wrap, floats overflow to infinity."""
    if d.category == 0:
        return (bool(value),)
    if d.category == 1:
        bits = d.itemsize * 8
        value = int(value) & ((1 << bits) - 1)
        return (value - (1 << bits) if d.is_signed and value >> (bits - 1) else value,)
    real = ctypes.c_float if d.itemsize == 4 or d.name == "complex64" else ctypes.c_double
    if d.category == 2:
        return (real(value).value,)
    return (real(complex(value).real).value, real(complex(value).imag).value)


def _padded(letters: str) -> str:
    """A `struct` format padded to whole slots."""
    size = struct.calcsize("=" + letters)
    return letters + "x" * (-size % SLOT)


class Packing:
    """How a kernel's arguments are packed: those of each launch, then those that never change.

    Parameters
    ----------
    fields : sequence of str
        The arguments of a launch in `struct`'s letters, without alignment.
    constants : sequence of (str, tuple)
        Those that never change, with their values.

    Attributes
    ----------
    letters : str or None
        Those of the arguments of a launch, where each is one number.
    sizes : tuple of int
        Bytes of each argument that never changes, as they lie in ``tail``.
    """

    def __init__(
        self, fields: Sequence[str], constants: Sequence[tuple[str, tuple[Any, ...]]] = ()
    ) -> None:
        varying = [_padded(field) for field in fields]
        fixed = [_padded(field) for field, _ in constants]
        self.head = struct.Struct("=" + "".join(varying))
        self.fields = varying + fixed
        self.letters = None if any(len(f) > 1 for f in fields) else "".join(fields)
        self.sizes = tuple([struct.calcsize("=" + field) for field in fixed])
        self.tail = b"".join(
            [
                struct.pack("=" + field, *values)
                for field, (_, values) in zip(fixed, constants, strict=True)
            ]
        )
        self.spare: list[Arguments] = []  # blocks no launch uses at the moment

    def filled(self, values: Sequence[Any]) -> Arguments:
        """The arguments of one launch, which puts them back among ``spare``.

        Raises
        ------
        struct.error, OverflowError
            For a value that its field does not hold.
        """
        try:
            arguments = self.spare.pop()
        except IndexError:
            arguments = Arguments(self)
        arguments.pack(arguments.memory, arguments.start, *values)
        return arguments


class Arguments:
    """The memory a launch's arguments are read from, used by one launch at a time.

    ``table`` is the address of an array of pointers to the arguments, as cuLaunchKernel takes it.
    """

    def __init__(self, packing: Packing) -> None:
        self.spare = packing.spare
        sizes = [struct.calcsize("=" + field) for field in packing.fields]
        self.memory = ctypes.create_string_buffer(sum(sizes) + SLOT)
        base = ctypes.addressof(self.memory)
        self.start = -base % SLOT
        self.pack = packing.head.pack_into
        ctypes.memmove(base + self.start + packing.head.size, packing.tail, len(packing.tail))
        places, at = [], base + self.start
        for size in sizes:
            places.append(at)
            at += size
        self._places = (ctypes.c_void_p * len(places))(*places)
        self.table = ctypes.addressof(self._places)
