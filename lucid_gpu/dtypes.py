"""Element types, their limits and PyTorch's promotion rules, which differ from NumPy's."""

from __future__ import annotations

from builtins import bool as _Bool  # this module gives the name to a dtype
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["can_cast", "dtype", "finfo", "iinfo", "promote_types"]


_printed = ["lucid_gpu"]


def printed() -> str:
    """The package in ``str(x.dtype)`` and ``x.type()``: "torch" after `install_as_torch`."""
    return _printed[-1]


def print_as(package: str) -> None:
    """Name another package there."""
    _printed.append(package)


class dtype:
    """An element type, such as ``lucid_gpu.float32``.

    Attributes
    ----------
    name : str
        PyTorch's name.
    numpy : numpy.dtype
        The storage type of both NumPy and CuPy buffers.
    category : int
        0 bool, 1 integer, 2 floating point, 3 complex.
    compute : dtype
        The type arithmetic is done in: float32 for the 16-bit floats, itself otherwise.
    """

    __slots__ = ("category", "compute", "itemsize", "name", "numpy")

    def __init__(self, name: str, storage: Any, category: int) -> None:
        self.name = name
        self.numpy = np.dtype(storage)
        self.itemsize = self.numpy.itemsize
        self.category = category
        self.compute = self

    @property
    def is_floating_point(self) -> _Bool:
        """Whether it holds real floating point numbers."""
        return self.category == 2

    @property
    def is_complex(self) -> _Bool:
        """Whether it holds complex numbers."""
        return self.category == 3

    @property
    def is_signed(self) -> _Bool:
        """Whether it holds negative numbers; RuntimeError for quantized types."""
        if self.name.startswith(("qint", "quint")):
            raise RuntimeError("isSignedType not supported for quantized types")
        return self.category >= 2 or self.name.startswith("int")

    @property
    def type_name(self) -> str:
        """What PyTorch's messages call it, such as ``Float``."""
        return _TYPE_NAMES.get(self.name, self.name)

    @property
    def cpp_name(self) -> str:
        """What C++ calls it, and so some of PyTorch's messages, such as ``float``."""
        return _CPP_NAMES.get(self.name) or f"c10::{self.type_name}"

    def to_complex(self) -> dtype:
        """The complex type whose parts have this type; RuntimeError for integers and bool."""
        if self.category == 3:
            return self
        if self.category < 2:
            raise RuntimeError(f"Unknown Complex ScalarType for {self.type_name}")
        return complex128 if self is float64 else complex64

    def to_real(self) -> dtype:
        """The type of a complex type's parts; any other itself."""
        return {complex64: float32, complex128: float64}.get(self, self)

    def __repr__(self) -> str:
        return f"{printed()}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name, (self.name,)


_TYPE_NAMES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
_CPP_NAMES = {
    "bool": "bool", "float32": "float", "float64": "double",
    "int8": "signed char", "int16": "short int", "int32": "int", "int64": "long int",
    "uint8": "unsigned char", "uint16": "short unsigned int", "uint32": "unsigned int",
    "uint64": "long unsigned int",
    "complex32": "c10::complex<c10::Half>", "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}  # fmt: skip
bool = dtype("bool", np.bool_, 0)
uint8 = dtype("uint8", np.uint8, 1)
int8 = dtype("int8", np.int8, 1)
int16 = dtype("int16", np.int16, 1)
int32 = dtype("int32", np.int32, 1)
int64 = dtype("int64", np.int64, 1)
float16 = dtype("float16", np.float16, 2)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, 2)
float32 = dtype("float32", np.float32, 2)
float64 = dtype("float64", np.float64, 2)
complex64 = dtype("complex64", np.complex64, 3)
complex128 = dtype("complex128", np.complex128, 3)
float16.compute = bfloat16.compute = float32

ALL = (
    bool,
    uint8,
    int8,
    int16,
    int32,
    int64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)
ALIASES = {
    "half": float16,
    "float": float32,
    "double": float64,
    "short": int16,
    "int": int32,
    "long": int64,
    "cfloat": complex64,
    "cdouble": complex128,
}


def unimplemented(op: str, d: dtype, advice: str = "") -> NotImplementedError:
    """The error of an op that does not compute with a type, in PyTorch's words."""
    return NotImplementedError(f"\"{op}\" not implemented for '{d.type_name}'{advice}")


def overflow(d: dtype, more: str = "") -> RuntimeError:
    """The error of a number that a type does not hold, in PyTorch's words: integers have C's."""
    name = "int" if d is int32 else f"{d.name}_t" if d.category == 1 else d.name
    return RuntimeError(f"value cannot be converted to type {name} without overflow{more}")


class NamedOnly(dtype):
    """A type that programs compare with, and that no tensor has."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _named_only, (self.name,)


def _named_only(name: str) -> NamedOnly:
    return NAMED_ONLY[name]


uint16 = NamedOnly("uint16", np.uint16, 1)
uint32 = NamedOnly("uint32", np.uint32, 1)
uint64 = NamedOnly("uint64", np.uint64, 1)
complex32 = NamedOnly("complex32", np.dtype([("real", np.float16), ("imag", np.float16)]), 3)
float8_e4m3fn = NamedOnly("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 2)
float8_e4m3fnuz = NamedOnly("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 2)
float8_e5m2 = NamedOnly("float8_e5m2", ml_dtypes.float8_e5m2, 2)
float8_e5m2fnuz = NamedOnly("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 2)
chalf = complex32
qint8 = NamedOnly("qint8", np.dtype([("quantized", np.int8)]), 1)
qint32 = NamedOnly("qint32", np.dtype([("quantized", np.int32)]), 1)
quint8 = NamedOnly("quint8", np.dtype([("quantized", np.uint8)]), 1)
quint2x4 = NamedOnly("quint2x4", np.dtype([("quantized by four", np.uint8)]), 1)
quint4x2 = NamedOnly("quint4x2", np.dtype([("quantized by two", np.uint8)]), 1)
NAMED_ONLY = {
    d.name: d
    for d in (
        *(uint16, uint32, uint64, complex32),
        *(qint8, qint32, quint8, quint2x4, quint4x2),
        *(float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz),
    )
}
BY_NAME = {d.name: d for d in ALL}
_FROM_NUMPY: dict[Any, dtype] = {d.numpy: d for d in ALL}
_default_float = float32
when_default_changes: list[Callable[[], None]] = []  # what was derived with it is to be forgotten


def _numpy(self: dtype) -> Any:
    """NumPy's type, as ``numpy.zeros(3, t.dtype)`` and ``numpy.finfo(t.dtype)`` ask for it."""
    return self.numpy


dtype.dtype = property(_numpy)  # type: ignore[attr-defined]


def _by_name(name: str) -> dtype:
    return BY_NAME[name]


def from_numpy_dtype(storage: Any) -> dtype:
    """The dtype of an array's elements.

    Raises
    ------
    TypeError
        For element types that have no tensor type (objects, strings, structures, uint16...).
    """
    element_type = _FROM_NUMPY.get(storage)
    if element_type is None:
        native = np.dtype(storage).newbyteorder("=")
        element_type = _FROM_NUMPY.get(native)
    if element_type is None:
        raise TypeError(
            f"can't convert an array of type {storage}; the supported types are: "
            + ", ".join(BY_NAME)
            + instead_of(np.dtype(storage))
        )
    return element_type


def require_native(storage: Any) -> None:
    """Refuse an array's type whose bytes lie in the other order.

    ValueError with PyTorch's sentence, and what to write.
    """
    if not storage.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion "
            "between byte orders is currently not supported. Write "
            "array.astype(array.dtype.newbyteorder('='))"
        )


def instead_of(storage: Any) -> str:
    """What to write for an array whose elements no tensor holds."""
    if storage.names:
        name = storage.names[0]
        return (
            f". Elements are structures: take a field, array[{name!r}], or "
            "numpy.lib.recfunctions.structured_to_unstructured(array)"
        )
    return "".join([text for kinds, text in _INSTEAD if storage.kind in kinds])


_INSTEAD = (
    ("O", ". Elements are Python objects: array.astype(float) if they are numbers, numpy.stack(...)"
          " if they are arrays"),
    ("SUT", ". Elements are text: array.astype(float) reads numbers; for labels take their "
            "positions, numpy.unique(array, return_inverse=True)[1]"),
    ("M", ". Times are counted from a first one: (array - array[0]) / numpy.timedelta64(1, 's')"),
    ("m", ". Durations are counted in a unit: array / numpy.timedelta64(1, 's')"),
    ("f", ": array.astype('float64')"),
    ("c", ": array.astype('complex128')"),
    ("u", ": array.astype('int64')"),
    ("V", ": array.astype('float32')"),  # ml_dtypes' float8 and int4
)  # fmt: skip


def as_dtype(value: Any) -> dtype:
    """Read what a user passed for ``dtype=``: a dtype, a Python type or one of NumPy's."""
    if type(value) is dtype:
        return value
    if type(value) is NamedOnly:
        instead = {1: "int64", 2: "bfloat16", 3: "complex64"}[value.category]
        raise TypeError(
            f"{value} is a name to compare with: no tensor has this type; take {instead}"
        )
    if isinstance(value, str):
        named = BY_NAME.get(value)
        instead = "" if named is None else f"; write dtype={printed()}.{named.name}"
        raise TypeError(f"argument 'dtype' must be torch.dtype, not str{instead}")
    python = {float: float64, int: int64, _Bool: bool, complex: complex128}.get(value)
    if python is not None:
        return python
    try:
        return from_numpy_dtype(np.dtype(value))
    except TypeError:
        raise TypeError(
            f"dtype must be a lucid_gpu.dtype such as lucid_gpu.float32, got {value!r}"
        ) from None


def element_type(value: Any) -> dtype:
    """Return the element type for what NumPy takes for one: ``float``, ``"f4"``, ``np.int64``."""
    return value if isinstance(value, dtype) else from_numpy_dtype(np.dtype(value))


def get_default_dtype() -> dtype:
    """The floating point type of new tensors made from Python floats (float32 at first)."""
    return _default_float


def set_default_dtype(d: dtype) -> None:
    """Set the type returned by `get_default_dtype`; a floating point type is required.

    TypeError for another type.
    """
    global _default_float
    if not as_dtype(d).is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    _default_float = d
    for forget in when_default_changes:
        forget()


_RANK = {d: i for i, d in enumerate(ALL)}


def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest type both convert to, by PyTorch's table."""
    if a is b:
        return a
    if a not in _RANK or b not in _RANK:
        return promote_types(as_dtype(a), as_dtype(b))
    if _RANK[a] > _RANK[b]:
        a, b = b, a
    if b.category == 1 and a is uint8 and b is int8:
        return int16
    if a is float16 and b is bfloat16:
        return float32
    if b is complex64 and a is float64:
        return complex128
    return b


def scalar_type(value: object) -> dtype:
    """The weak type of a Python number."""
    if isinstance(value, _Bool):
        return bool
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return _default_float
    if isinstance(value, complex):
        return complex128 if _default_float is float64 else complex64
    raise TypeError(f"expected a number, got {type(value).__name__}")


def result_type(tensors: list[tuple[dtype, int]], scalars: list[dtype]) -> dtype:
    """Promote operands in PyTorch's three classes: dimensioned, 0-d, Python numbers.

    A lower class only matters where its category (bool < integer < float < complex) is higher.

    Parameters
    ----------
    tensors : list of (dtype, ndim)
    scalars : list of dtype
        Weak types of the Python numbers.
    """
    result: dtype | None = None
    for group in (
        [d for d, n in tensors if n > 0],
        [d for d, n in tensors if n == 0],
        scalars,
    ):
        if not group:
            continue
        merged = group[0]
        for d in group[1:]:
            merged = promote_types(merged, d)
        if result is None:
            result = merged
        elif merged.category > result.category:
            result = _raise_category(result, merged)
    assert result is not None
    return result


def _raise_category(result: dtype, other: dtype) -> dtype:
    if other.category == 3 and result.category == 2:  # the parts keep the floats' precision
        return complex128 if result is float64 else complex64
    return other


def _limited(type: Any) -> dtype:
    """A type to be asked for its limits, which those have that no tensor has."""
    return type if isinstance(type, NamedOnly) else as_dtype(type)


class _Limits:
    """Limits of a type, equal to those of the same type."""

    __hash__ = None  # type: ignore[assignment]  # as PyTorch's

    def __eq__(self, other: object) -> _Bool:
        return type(self) is type(other) and vars(self) == vars(other)


class finfo(_Limits):
    """Limits of a floating point type.

    Parameters
    ----------
    type : dtype, optional
        By default `get_default_dtype`; of a complex type, that of its parts.

    Attributes
    ----------
    bits : int
    eps : float
        From 1 to the next number.
    max, min : float
    smallest_normal, tiny : float
    resolution : float
        The last decimal digit that is kept.
    dtype : str

    Raises
    ------
    TypeError
        For integers and bool.
    """

    def __init__(self, type: dtype | None = None) -> None:
        import ml_dtypes

        d = get_default_dtype() if type is None else _limited(type)
        if d.category < 2:
            raise TypeError(
                "torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{d}'"
            )
        limits: Any = ml_dtypes.finfo(np.float16 if d is complex32 else d.numpy)
        self.bits: int = limits.bits
        self.eps, self.resolution = float(limits.eps), float(f"1e-{limits.precision}")
        self.max, self.min = float(limits.max), float(limits.min)
        self.tiny = self.smallest_normal = float(limits.tiny)
        self.dtype = str(limits.dtype)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.tiny:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo(_Limits):
    """Limits of an integer type.

    Attributes
    ----------
    bits, max, min : int
    dtype : str

    Raises
    ------
    TypeError
        For floating point, complex and bool.
    """

    def __init__(self, type: dtype) -> None:
        d = _limited(type)
        if d.category != 1:
            raise TypeError(
                f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{d}'"
            )
        self.bits = 8 * d.itemsize
        self.min = -(2 ** (self.bits - 1)) if d.is_signed else 0
        self.max = self.min + 2**self.bits - 1
        self.dtype = d.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def can_cast(from_: dtype, to: dtype) -> _Bool:
    """Whether an op's result may be written into a type: into no lower category."""
    a, b = as_dtype(from_), as_dtype(to)
    return a.category <= b.category
