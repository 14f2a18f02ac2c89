"""DLPack's capsules: arrays handed from one library to another without a copy.

NumPy and CuPy make capsules and read them; what they do not know, bfloat16, goes under the name
of int16 through their hands and is called by its own in the capsule. The layout of what a capsule
points to is dlpack.h's (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from lucid_gpu.dtypes import bfloat16

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_INT, _BFLOAT = 0, 4  # DLDataTypeCode
_CODES = {
    0: "int",
    1: "uint",
    2: "float",
    3: "handle",
    4: "bfloat",
    5: "complex",
    6: "bool",
    7: "float8_e3m4_",
    8: "float8_e4m3_",
    9: "float8_e4m3b11fnuz_",
    10: "float8_e4m3fn_",
    11: "float8_e4m3fnuz_",
    12: "float8_e5m2_",
    13: "float8_e5m2fnuz_",
    14: "float8_e8m0fnu_",
}
_READ_ONLY, _COPIED = 1, 2  # flags of a versioned capsule


class _Managed(ctypes.Structure):
    """What comes before the tensor in a versioned capsule; the older kind begins with it."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class _DLTensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (("head", _Managed), ("tensor", _DLTensor))


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


def _pointer_to(kind: Any) -> Any:
    """PyCapsule_GetPointer, for capsules that point to this."""
    signature = ctypes.PYFUNCTYPE(ctypes.POINTER(kind), ctypes.py_object, ctypes.c_char_p)
    return signature(("PyCapsule_GetPointer", ctypes.pythonapi))


_to_versioned, _to_tensor = _pointer_to(_Versioned), _pointer_to(_DLTensor)


def _inside(capsule: Any) -> tuple[_DLTensor, _Managed | None]:
    """The tensor in a capsule, and what says more of it in a versioned one."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _to_versioned(capsule, b"dltensor_versioned").contents
        return versioned.tensor, versioned.head
    if _is_valid(capsule, b"dltensor"):
        return _to_tensor(capsule, b"dltensor").contents, None
    raise RuntimeError(
        "from_dlpack received an invalid capsule: expected an object with __dlpack__ or a capsule "
        f"that nobody has read yet (it can be read once), got {type(capsule).__name__}"
    )


def capsule_of(array: Any, copied: bool, **options: Any) -> Any:
    """A capsule of an array of either backend.

    Parameters
    ----------
    copied : bool
        Nobody else sees this memory; a versioned capsule says so.
    options
        ``stream`` and ``max_version``, as the protocol has them.
    """
    foreign = array.dtype == bfloat16.numpy
    capsule = (array.view(np.int16) if foreign else array).__dlpack__(**options)
    tensor, head = _inside(capsule)
    if foreign:
        tensor.code = _BFLOAT
    if copied and head is not None:
        head.flags |= _COPIED
    return capsule


class Exporter:
    """What somebody gave to `from_dlpack`, as NumPy's and CuPy's own functions take it.

    Parameters
    ----------
    source : object with ``__dlpack__``, or capsule
    copy : bool or None
        What the producer is asked for, if it can be asked.
    """

    def __init__(self, source: Any, copy: bool | None) -> None:
        self.source, self.copy = source, copy
        self.bfloat16 = self.read_only = self.unversioned = False

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's numbers of the device."""
        if hasattr(self.source, "__dlpack__"):
            kind, index = self.source.__dlpack_device__()
        else:
            kind, index = _inside(self.source)[0].device
        return int(kind), int(index)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **options: Any) -> Any:
        """The capsule, after a look at what is in it."""
        capsule = self.source
        if hasattr(capsule, "__dlpack__"):
            capsule = self._asked({} if stream is None else {"stream": stream}, max_version)
        tensor, head = _inside(capsule)
        if tensor.lanes != 1 or tensor.code == 3 or tensor.code > 6:
            name = f"{_CODES.get(tensor.code, f'code {tensor.code}, ')}{tensor.bits}"
            name += f"x{tensor.lanes}" if tensor.lanes != 1 else ""
            raise TypeError(
                f"from_dlpack(): no tensor type holds DLPack's {name}; convert it where it comes "
                "from, to float32 say"
            )
        if tensor.code == _BFLOAT:
            tensor.code, self.bfloat16 = _INT, True
        self.unversioned = head is None
        self.read_only = head is not None and bool(head.flags & _READ_ONLY)
        return capsule

    def _asked(self, options: dict[str, Any], max_version: Any) -> Any:
        newer = {"max_version": max_version, "copy": self.copy}  # NumPy 2.0 reads no versions
        more = {name: value for name, value in newer.items() if value is not None}
        try:
            return self.source.__dlpack__(**options, **more)
        except TypeError:  # a producer of before 2024
            return self.source.__dlpack__(**options)


def array_of(exporter: Exporter, xp: Any) -> Any:
    """The array in what was given, by the array module of its device."""
    array = xp.from_dlpack(exporter)
    if exporter.unversioned and xp is np:
        array = _writeable(array)
    return array.view(bfloat16.numpy) if exporter.bfloat16 else array


def _writeable(array: Any) -> Any:
    """NumPy takes for read-only what a capsule of the older kind says nothing about."""
    return np.asarray(_Memory(array)) if array.size else array.copy()


class _Memory:
    """The same memory, described as one that may be written."""

    def __init__(self, array: Any) -> None:
        interface = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
