"""Element types: which kind, what they hold, and which one several together give."""

from __future__ import annotations

import builtins
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import resolve
from lucid_gpu.numpy.operands import as_tensor, first_tensor
from lucid_gpu.tensor import Tensor

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

Scalar = (bool, int, float, complex)

KINDS = {
    "bool": lambda d: d.category == 0,
    "signed integer": lambda d: d.category == 1 and d.is_signed,
    "unsigned integer": lambda d: d.category == 1 and not d.is_signed,
    "integral": lambda d: d.category == 1,
    "real floating": lambda d: d.category == 2,
    "complex floating": lambda d: d.category == 3,
    "numeric": lambda d: d.category > 0,
}


def isdtype(dtype: dt.dtype, kind: Any) -> builtins.bool:
    """Whether a type is of a kind: a type, a name of `KINDS`, or one of a tuple of them.

    ValueError for other kinds.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, dt.dtype):
        return dt.as_dtype(dtype) is kind
    if kind not in KINDS:
        raise ValueError(f"kind must be a dtype or one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind](dt.as_dtype(dtype))


def result_type(*arrays_and_dtypes: Any) -> dt.dtype:
    """The type that operands give together; those without dimensions count as all others do.

    Raises
    ------
    ValueError
        If there are only Python's numbers.
    """
    numbers = [v for v in arrays_and_dtypes if isinstance(v, Scalar)]
    dtypes = [_type_of(v) for v in arrays_and_dtypes if not isinstance(v, Scalar)]
    if not dtypes:
        raise ValueError("result_type takes at least one array or dtype")
    common = functools.reduce(dt.promote_types, dtypes)
    return dt.result_type([(common, 1)], [dt.scalar_type(v) for v in numbers])


def _type_of(value: Any) -> dt.dtype:
    return value if isinstance(value, dt.dtype) else as_tensor(value).dtype


def promoted(*operands: Any) -> list[Any]:
    """Tensors in their common type; Python's numbers stay, for they are weak."""
    like = first_tensor(operands)
    converted = [v if isinstance(v, Scalar) else as_tensor(v, like) for v in operands]
    types = {v.dtype for v in converted if isinstance(v, Tensor)}
    if len(types) > 1:
        d = functools.reduce(dt.promote_types, types)
        converted = [v.to(d) if isinstance(v, Tensor) else v for v in converted]
    elif not types:
        raise TypeError("at least one of the operands must be an array")
    return converted


def can_cast(from_: Any, to: dt.dtype, /) -> builtins.bool:
    """Whether values of a type, or an array, go into another type without loss."""
    return builtins.bool(np.can_cast(_type_of(from_).numpy, to.numpy))


def astype(
    x: Tensor, dtype: dt.dtype, /, *, copy: builtins.bool = True, device: Any = None
) -> Tensor:
    """The elements in another type, on another device; with ``copy=False`` copied only if needed.

    Raises
    ------
    TypeError
        From complex numbers to real ones.
    """
    if x.dtype.category == 3 and dtype.category in (1, 2):
        raise TypeError(f"astype from {x.dtype} to {dtype}: write astype(real(x), {dtype})")
    converted = x.to(dtype) if device is None else x.to(resolve(device), dtype)
    return converted.clone() if copy and converted is x else converted


@dataclass(frozen=True)
class FloatLimits:
    """What `finfo` gives."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dt.dtype


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` gives."""

    bits: int
    max: int
    min: int
    dtype: dt.dtype


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a floating point type, or an array's; of a complex type, those of its parts."""
    d = _type_of(type)
    f = dt.finfo(d)
    return FloatLimits(f.bits, f.eps, f.max, f.min, f.smallest_normal, d.to_real())


def iinfo(type: Any, /) -> IntegerLimits:
    """Limits of an integer type, or an array's."""
    d = _type_of(type)
    i = dt.iinfo(d)
    return IntegerLimits(i.bits, i.max, i.min, d)
