"""Batched products of 16-bit matrices on the GPU, accumulating in float32.

CuPy 14 multiplies 2-D 16-bit matrices by cublasGemmEx; with more dimensions it copies float16 to
float32 and fails for bfloat16 (cupy issue 10317). Here cublasGemmStridedBatchedEx is called.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

_CUDA_TYPES = {"float16": 2, "bfloat16": 14}  # CUDA_R_16F, CUDA_R_16BF
_COMPUTE_32F = 68  # CUBLAS_COMPUTE_32F
_ANY_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
_AS_IS, _TRANSPOSED = 0, 1


class Operand(NamedTuple):
    """A batch of matrices as cuBLAS takes it.

    ``leading`` is the distance of rows, ``step`` that of matrices, both in elements. ``mode`` says
    whether the rows in memory are the matrix's columns.
    """

    array: Any
    mode: int
    leading: int
    step: int


def operand(xp: Any, array: Any) -> Operand:
    """Describe an array of shape (batch, rows, columns), copied only where strides fit no mode."""
    size = array.itemsize
    step, row, column = [s // size for s in array.strides]
    rows, columns = array.shape[1:]
    if column == 1 and row >= max(columns, 1):
        return Operand(array, _AS_IS, row, step)
    if row == 1 and column >= max(rows, 1):
        return Operand(array, _TRANSPOSED, column, step)
    array = xp.ascontiguousarray(array)
    return Operand(array, _AS_IS, max(columns, 1), rows * columns)


def _batch(xp: Any, array: Any, lead: tuple[int, ...]) -> Any:
    """An array broadcast over ``lead`` with these dimensions made one: a view where it can be."""
    if array.ndim == 2:
        return xp.broadcast_to(array, (_count(lead), *array.shape))
    return xp.broadcast_to(array, lead + array.shape[-2:]).reshape(-1, *array.shape[-2:])


def _count(shape: tuple[int, ...]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def matmul(xp: Any, a: Any, b: Any) -> Any:
    """``a @ b`` for float16 or bfloat16 arrays of at least two dimensions, one of more."""
    lead = xp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k = a.shape[-2:]
    n = b.shape[-1]
    out = xp.empty((*lead, m, n), a.dtype)
    if k == 0:
        out[...] = 0
    if out.size == 0 or k == 0:
        return out
    multiply(operand(xp, _batch(xp, a, lead)), operand(xp, _batch(xp, b, lead)), out, (m, n, k))
    return out


def multiply(a: Operand, b: Operand, out: Any, sizes: tuple[int, int, int]) -> None:
    """Fill ``out`` with the products: cuBLAS, being column-major, finds (a b)^T = b^T a^T."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    m, n, k = sizes
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    kind = _CUDA_TYPES[out.dtype.name]
    handle = device.get_cublas_handle()
    mode = cublas.getPointerMode(handle)
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    try:
        cublas.gemmStridedBatchedEx(
            handle, b.mode, a.mode, n, m, k, ctypes.addressof(one),
            b.array.data.ptr, kind, b.leading, b.step,
            a.array.data.ptr, kind, a.leading, a.step,
            ctypes.addressof(zero), out.data.ptr, kind, n, m * n,
            out.size // (m * n), _COMPUTE_32F, _ANY_ALGORITHM,
        )  # fmt: skip
    finally:
        cublas.setPointerMode(handle, mode)
