"""A stand-in for CuPy, for tests on machines without a GPU. It is not CuPy; no GPU is here.

Names, signatures, types and refusals are the real package's (`tests/standin/test_names.py`
compares), memory is the host's, and kernels are compiled by g++. What runs over it says that the
package calls CuPy as CuPy wants to be called; it says nothing about speed, and no result of it is
ever a GPU result.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy import (
    bool_,
    complex64,
    complex128,
    dtype,
    e,
    euler_gamma,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    inf,
    int8,
    int16,
    int32,
    int64,
    intp,
    issubdtype,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

from cupy import cuda  # isort: skip
from cupy import _array, _core, _creation, _raw, _routines, _ufunc
from cupy._array import ndarray
from cupy._creation import (
    arange,
    array,
    asanyarray,
    asarray,
    ascontiguousarray,
    asfortranarray,
    asnumpy,
    broadcast_arrays,
    broadcast_shapes,
    copy,
    copyto,
    einsum,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    get_array_module,
    get_default_memory_pool,
    get_default_pinned_memory_pool,
    identity,
    linspace,
    matmul,
    may_share_memory,
    ndim,
    ones,
    ones_like,
    result_type,
    shape,
    shares_memory,
    take,
    tri,
    zeros,
    zeros_like,
)
from cupy._dlpack import from_dlpack
from cupy._raw import RawKernel, RawModule, memoize
from cupy._ufunc import ufunc

__version__ = "14.2.0"
is_available = cuda.is_available
globals().update(_routines.FUNCTIONS)
globals().update(_ufunc.all_of_them())
_array.install()
_routines.install()

from cupy import fft, lib, linalg  # noqa: E402


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"the stand-in for CuPy (tests/standin) has no {name!r}; where CuPy has it, add it there"
    )
