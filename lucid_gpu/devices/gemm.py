"""Matrix products on the GPU: one way to cuBLAS for every type, rank and layout.

CuPy multiplies 2-D matrices well, but copies slices, copies batches of float16 to float32, fails
for batches of bfloat16 (cupy issue 10317), and its TF32 switch reaches 2-D products only. Here
cublasGemmEx and cublasGemmStridedBatchedEx are called with the strides the arrays have.

A matrix goes as it is when one of its strides is 1 and the other no shorter than a row: views of
leading rows and columns, transposes, broadcast batches (step 0), batches whose dimensions walk
memory in one stride. The rest is copied first, because cuBLAS has one leading dimension a matrix
and one step a batch: every second column, reversed rows, one row broadcast over a matrix, and
batches such as (2, 3) from (2, 1).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.devices.precision import matmul as precision

_AS_IS, _TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
_ANY_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
_POINTERS_TO_HOST = 0  # CUBLAS_POINTER_MODE_HOST
_DEFAULT_MATH, _EXACT_REDUCTION = 0, 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_LONGEST = 2**31 - 1  # cuBLAS takes leading dimensions as int

_IN_FLOAT16, _IN_FLOAT32, _IN_TF32, _IN_FLOAT64 = 64, 68, 77, 70  # CUBLAS_COMPUTE_*

# The factors 1 and 0 as cuBLAS reads them: of the type computed in, complex where matrices are.
_FACTORS = (
    (ctypes.c_float * 2)(1.0, 0.0),
    (ctypes.c_float * 2)(),
    (ctypes.c_double * 2)(1.0, 0.0),
    (ctypes.c_double * 2)(),
    ctypes.c_uint16(0x3C00),
    ctypes.c_uint16(0),
)
_addresses = [ctypes.addressof(factor) for factor in _FACTORS]
_SINGLE, _DOUBLE, _HALF = zip(_addresses[::2], _addresses[1::2])

TYPES = {  # CUDA_R_16F and so on, by dtype
    "float16": 2,
    "bfloat16": 14,
    "float32": 0,
    "float64": 1,
    "complex64": 4,
    "complex128": 5,
}


class Operand(NamedTuple):
    """A batch of matrices as cuBLAS takes it.

    ``leading`` is the distance of rows, ``step`` that of matrices, both in elements. ``mode`` says
    whether the rows in memory are the matrix's columns.
    """

    array: Any
    mode: int
    leading: int
    step: int


def multiply(xp: Any, a: Any, b: Any, out: Any) -> None:
    """Fill ``out`` with ``a @ b``.

    Parameters
    ----------
    xp : module
        What copies an array whose strides cuBLAS cannot take.
    a, b : array, shape (..., m, k) and (..., k, n)
        Of one type among `TYPES`; leading dimensions broadcast.
    out : array, shape (..., m, n), row-major
    """
    (m, n), k = out.shape[-2:], a.shape[-1]
    if out.size == 0:
        return
    if k == 0:
        out[...] = 0
        return
    lead = out.shape[:-2]
    if b.ndim == 2 and _merged(a.shape[:-1], _steps(a)[:-1]) is not None:
        a = a.reshape(-1, k)  # one tall matrix, where that is a view
        lead, m = (), a.shape[0]
    _call(operand(xp, a, lead), operand(xp, b, lead), out, (m, n, k))


def operand(xp: Any, array: Any, lead: tuple[int, ...]) -> Operand:
    """Describe matrices broadcast over ``lead``, copied only where their strides fit no mode."""
    found = _matrix(array)
    if found is None:
        array = xp.ascontiguousarray(array)
        found = (_AS_IS, max(array.shape[-1], 1))
    spread = xp.broadcast_to(array, lead + array.shape[-2:])
    batch = _merged(lead, _steps(spread)[:-2])
    if batch is None:
        return operand(xp, xp.ascontiguousarray(spread), lead)
    return Operand(spread, *found, batch[1])


def _steps(array: Any) -> tuple[int, ...]:
    return tuple([stride // array.itemsize for stride in array.strides])


def _matrix(array: Any) -> tuple[int, int] | None:
    """The mode and leading dimension of matrices; None where a copy is needed."""
    rows, columns = array.shape[-2:]
    row, column = _steps(array)[-2:]
    if (column == 1 or columns == 1) and (rows == 1 or columns <= row <= _LONGEST):
        return _AS_IS, columns if rows == 1 else row
    if (row == 1 or rows == 1) and (columns == 1 or rows <= column <= _LONGEST):
        return _TRANSPOSED, rows if columns == 1 else column
    return None


def _merged(extents: Sequence[int], steps: Sequence[int]) -> tuple[int, int] | None:
    """Dimensions walked as one: their count and step; None where no single step does it."""
    count, step = 1, 0
    for extent, here in zip(reversed(extents), reversed(steps), strict=True):
        if extent == 1:
            continue
        if count == 1:
            step = here
        elif here != step * count:
            return None
        count *= extent
    return (count, step) if step >= 0 else None


def _call(a: Operand, b: Operand, out: Any, sizes: tuple[int, int, int]) -> None:
    """Run the product: cuBLAS, being column-major, finds (a b)^T = b^T a^T."""
    m, n, k = sizes
    batch = out.size // (m * n)
    kind = TYPES[out.dtype.name]
    compute, math, (one, zero) = _arithmetic(out.dtype.name)
    left = (address(b.array), kind, b.leading)
    right = (address(a.array), kind, a.leading)
    result = (address(out), kind, n)
    start = (b.mode, a.mode, n, m, k, one)
    after = (zero, *result)
    if batch == 1:
        _run("gemmEx", (*start, *left, *right, *after, compute, _ANY_ALGORITHM), math)
    else:
        steps = (*start, *left, b.step, *right, a.step, *after, m * n, batch)
        _run("gemmStridedBatchedEx", (*steps, compute, _ANY_ALGORITHM), math)


def _arithmetic(kind: str) -> tuple[int, int, tuple[int, int]]:
    """The compute type, the math mode, and the addresses of the factors 1 and 0."""
    if kind in ("float64", "complex128"):
        return _IN_FLOAT64, _DEFAULT_MATH, _DOUBLE
    if kind == "float16" and precision.allow_fp16_accumulation:
        return _IN_FLOAT16, _DEFAULT_MATH, _HALF
    if kind == "float16":
        return _IN_FLOAT32, _reduction(precision.allow_fp16_reduced_precision_reduction), _SINGLE
    if kind == "bfloat16":
        return _IN_FLOAT32, _reduction(precision.allow_bf16_reduced_precision_reduction), _SINGLE
    return _IN_TF32 if precision.allow_tf32 else _IN_FLOAT32, _DEFAULT_MATH, _SINGLE


def _reduction(may_round: bool) -> int:
    return _DEFAULT_MATH if may_round else _EXACT_REDUCTION


def address(array: Any) -> int:
    """Where an array's first element lies."""
    pointer: int = array.data.ptr
    return pointer


@functools.cache
def _library() -> tuple[Any, Any]:
    """What gives the current device's handle, and CuPy's binding of cuBLAS."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    return device.get_cublas_handle, cublas


def _run(name: str, arguments: tuple[Any, ...], math: int) -> None:
    """Call cuBLAS on the current device's handle and stream, leaving its modes as they were."""
    get_handle, cublas = _library()
    handle = get_handle()
    call = getattr(cublas, name)
    pointers, before = cublas.getPointerMode(handle), cublas.getMathMode(handle)
    if pointers == _POINTERS_TO_HOST and before == math:  # nearly always
        call(handle, *arguments)
        return
    cublas.setPointerMode(handle, _POINTERS_TO_HOST)
    cublas.setMathMode(handle, math)
    try:
        call(handle, *arguments)
    finally:
        cublas.setPointerMode(handle, pointers)
        cublas.setMathMode(handle, before)
