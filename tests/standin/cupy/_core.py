"""What every part of the stand-in shares: which types there are, and how results become arrays."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import ml_dtypes
import numpy

from cupy import _counts
from cupy.cuda import runtime, stream

bfloat16 = numpy.dtype(ml_dtypes.bfloat16)
_CHARS = frozenset("?bBhHiIlLqQefdFD")
SCALARS = (bool, int, float, complex, numpy.generic)


def get_dtype(dtype: Any) -> numpy.dtype[Any]:
    """A type a GPU has; others are refused."""
    found = numpy.dtype(dtype)
    if found == bfloat16:
        return bfloat16
    if found.char not in _CHARS or not found.isnative:
        raise ValueError(f"Unsupported dtype {found}")
    return found


def letter(dtype: numpy.dtype[Any]) -> str:
    """The letter CuPy's tables of loops know a type by."""
    return "E" if dtype == bfloat16 else dtype.char


def fresh(shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array in poisoned memory."""
    from cupy._array import ndarray

    return ndarray(shape, dtype)


def place(result: Any) -> Any:
    """A NumPy result as an array on the device, written in the order of the current stream."""
    result = numpy.asarray(result)
    array = fresh(result.shape, get_dtype(result.dtype))
    write(array, result)
    return array


def write(target: Any, value: Any, casting: Any = "unsafe", function: str = "of CuPy's") -> None:
    """Copy host values into an array in the order of the current stream."""
    if function:
        _counts.note("function", function)
    ptr = stream.get_current_stream().ptr
    if ptr:
        value = numpy.array(value)
    host = target._a

    def copy() -> None:
        with numpy.errstate(all="ignore"):
            numpy.copyto(host, value, casting=casting)

    stream._submit(copy, ptr)


def host_of(array: Any) -> Any:
    """The memory of an array, after what the current stream has yet to do, on its own device."""
    check_device(array)
    stream._settle()
    return array._a


def bytes_at(address: int, size: int) -> Any:
    """The memory at an address as bytes."""
    return numpy.frombuffer(_row_of_bytes(size).from_address(address), numpy.uint8)


@functools.cache
def _row_of_bytes(size: int) -> Any:
    """One type a size: each is a reference cycle, which tests of cycles would count."""
    return ctypes.c_ubyte * size


def check_device(array: Any) -> None:
    current = runtime.getDevice()
    if array._mem.device_id not in (current, -1):
        raise ValueError(
            f"The device where the array resides ({array._mem.device_id}) is different from the "
            f"current device ({current}). Peer access is unavailable between these devices."
        )


def is_array(value: Any) -> bool:
    from cupy._array import ndarray

    return isinstance(value, ndarray)


def is_like(value: Any) -> bool:
    """Whether CuPy takes another library's value for an array. `hasattr` lets errors through."""
    return hasattr(value, "__cuda_array_interface__") or hasattr(value, "__cupy_get_ndarray__")


def taken(value: Any) -> Any:
    """An operand of a ufunc's: what another library has on the GPU becomes an array."""
    if is_array(value) or isinstance(value, SCALARS):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        from cupy._dlpack import from_interface

        return from_interface(value)
    if hasattr(value, "__cupy_get_ndarray__"):
        return value.__cupy_get_ndarray__()
    return value


def refuse(value: Any) -> None:
    """As `cupy._core._scalar` refuses what is neither an array of CuPy's nor a number."""
    raise TypeError(f"Unsupported type {type(value)}")


class core:
    """The names of `cupy._core.core` that are asked for."""

    @staticmethod
    def assemble_cupy_compiler_options(options: tuple[str, ...]) -> tuple[str, ...]:
        return (*options, "-I/nowhere")
