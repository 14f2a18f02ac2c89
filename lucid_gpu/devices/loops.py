"""NumPy's compiled loops, called one after another without the interpreter between them.

A ufunc holds compiled SIMD loops, one a combination of types, all of one C signature:
``loop(char **arguments, intp *count, intp *steps, void *data)``. `walker` is forty bytes of machine
code that call the loops of a table in turn. Nothing is compiled, the arithmetic is NumPy's to the
last bit; what goes away is the interpreter (a third of a microsecond a call) and its lock.

`lucid_gpu.devices.calls` writes such tables as one writes NumPy.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["POINTER", "address", "addresses", "loop_of", "walker"]

_HEAD = object.__basicsize__
POINTER = np.dtype(np.intp)

# System V AMD64: walk(entries, count) calls entry.loop(entry.arguments, .count, .steps, .data).
_WALK_X86_64 = bytes.fromhex(
    "53"  # push rbx
    "55"  # push rbp
    "4883ec08"  # sub rsp, 8         keep the stack aligned for calls
    "4889fb"  # mov rbx, rdi         entries
    "4889f5"  # mov rbp, rsi         how many
    "4885ed"  # test rbp, rbp        next:
    "741b"  # jz done
    "488b7b08"  # mov rdi, [rbx+8]
    "488b7310"  # mov rsi, [rbx+16]
    "488b5318"  # mov rdx, [rbx+24]
    "488b4b20"  # mov rcx, [rbx+32]
    "ff13"  # call [rbx]
    "4883c328"  # add rbx, 40
    "48ffcd"  # dec rbp
    "ebe0"  # jmp next
    "4883c408"  # add rsp, 8         done:
    "5d5bc3"  # pop rbp; pop rbx; ret
)


class _UfuncStruct(ctypes.Structure):
    """The head of NumPy's public PyUFuncObject (numpy/ufuncobject.h)."""

    _fields_ = (
        ("head", ctypes.c_byte * _HEAD),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
    )


@functools.cache
def loop_of(ufunc: Any, signature: str) -> tuple[int, int] | None:
    """Address and data of a ufunc's loop for types such as ``"ff->f"``, or None."""
    if signature not in ufunc.types:
        return None
    inside = _UfuncStruct.from_address(id(ufunc))
    known = (inside.nin, inside.nout, inside.nargs, inside.ntypes, inside.name)
    if known != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes, ufunc.__name__.encode()):
        return None
    number = ufunc.types.index(signature)
    return inside.functions[number] or 0, inside.data[number] or 0


_WORD = POINTER.itemsize
_memory = (ctypes.c_size_t * (sys.maxsize // _WORD)).from_address(0)  # its words, to be read


def address(array: Any) -> int:
    """Where an array's first element lies (the ``data`` of PyArrayObject, after its head)."""
    if type(array) is not np.ndarray:
        raise TypeError(f"expected a NumPy array, got {type(array).__name__}")
    word: int = _memory[(id(array) + _HEAD) // _WORD]
    return word


def addresses(arrays: Sequence[Any]) -> list[int]:
    """The same of several arrays."""
    if {*map(type, arrays)} != {np.ndarray}:
        return [address(array) for array in arrays]
    return [_memory[(id(array) + _HEAD) // _WORD] for array in arrays]


_walk: Any = None  # the walker and its address; False where there is none


def walker() -> Any:
    """The machine code as a callable that lets go of the GIL, with its address; or False."""
    global _walk
    if _walk is None:
        _walk = _make_walker()
    return _walk


def _make_walker() -> Any:
    posix = sys.platform.startswith(("linux", "darwin"))
    if os.environ.get("LUCID_NATIVE_LOOPS") == "0" or not posix:
        return False
    if platform.machine() not in ("x86_64", "AMD64") or sys.maxsize < 2**32:
        return False
    if sys.implementation.name != "cpython":
        return False
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(_WALK_X86_64)
        where = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(where, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
            return False  # a system that forbids it
    except (OSError, ValueError, AttributeError):
        return False
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t)(where)
    call.memory = memory  # type: ignore[attr-defined]  # lives as long as the function
    return (call, where) if _works(call) else False


def _works(call: Any) -> bool:
    """Does one loop, walked, give what the ufunc gives?"""
    found = loop_of(np.multiply, "dd->d")
    if found is None:
        return False
    a, b, out = np.arange(5.0), np.arange(5.0) + 0.5, np.zeros(5)
    arguments = np.array([address(a), address(b), address(out)], POINTER)
    count, steps = np.array([5], POINTER), np.array([8, 8, 8], POINTER)
    words = [found[0], address(arguments), address(count), address(steps), found[1]]
    table = np.array(words, POINTER)
    call(address(table), 1)
    return bool((out == a * b).all())
