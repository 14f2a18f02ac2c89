"""cublas of the stand-in: products by NumPy from addresses, checked as cuBLAS checks."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy
from cupy import _core, _counts
from cupy.cuda import runtime, stream

CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C = 0, 1, 2
CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE = 0, 1
CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_32F = 64, 68
CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32 = 74, 75, 77
CUBLAS_COMPUTE_64F = 70
CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT_TENSOR_OP = -1, 99
CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_TF32_TENSOR_OP_MATH = 0, 1, 3

_TYPES = {  # cudaDataType: NumPy's type
    0: numpy.dtype("f"),
    1: numpy.dtype("d"),
    2: numpy.dtype("e"),
    4: numpy.dtype("F"),
    5: numpy.dtype("D"),
    14: numpy.dtype(ml_dtypes.bfloat16),
}
_FLOAT = {(2, 2), (14, 14), (2, 0), (14, 0), (0, 0), (4, 4)}  # of A and B, of C
_TAKES = {  # compute type: its own type, and pairs it multiplies
    CUBLAS_COMPUTE_16F: ("e", {(2, 2)}),
    CUBLAS_COMPUTE_32F: ("f", _FLOAT),
    CUBLAS_COMPUTE_32F_FAST_16F: ("f", {(0, 0), (4, 4)}),
    CUBLAS_COMPUTE_32F_FAST_16BF: ("f", {(0, 0), (4, 4)}),
    CUBLAS_COMPUTE_32F_FAST_TF32: ("f", {(0, 0), (4, 4)}),
    CUBLAS_COMPUTE_64F: ("d", {(1, 1), (5, 5)}),
}
_STATUS = {7: "CUBLAS_STATUS_INVALID_VALUE", 15: "CUBLAS_STATUS_NOT_SUPPORTED"}
_handles: dict[int, dict[str, int]] = {}


class CUBLASError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(_STATUS.get(status, f"CUBLAS_STATUS {status}"))

    def __reduce__(self) -> Any:
        return type(self), (self.status,)


def _handle_of(device: int) -> int:
    handle = 0x5000 + device
    _handles.setdefault(handle, {"device": device, "mode": 0, "math": 0})
    return handle


def create() -> int:
    device = runtime.getDevice()
    handle = 0x6000 + len(_handles)
    while handle in _handles:
        handle += 1
    _handles[handle] = {"device": device, "mode": 0, "math": 0}
    return handle


def destroy(handle: int) -> None:
    del _handles[handle]


def _state(handle: int) -> dict[str, int]:
    if handle not in _handles:
        raise CUBLASError(1)
    return _handles[handle]


def getPointerMode(handle: int) -> int:
    return _state(handle)["mode"]


def setPointerMode(handle: int, mode: int) -> None:
    _state(handle)["mode"] = mode


def getMathMode(handle: int) -> int:
    return _state(handle)["math"]


def setMathMode(handle: int, mode: int) -> None:
    _state(handle)["math"] = mode


def getVersion(handle: int) -> int:
    return 120901


def _scalar(address: int, kind: str, complex_too: bool) -> Any:
    letter = kind.upper() if complex_too else kind
    size = numpy.dtype(letter).itemsize
    return numpy.frombuffer(ctypes.string_at(address, size), letter)[0]


def _matrix(
    address: int, d: Any, rows: int, columns: int, leading: int, stride: int, batch: int
) -> Any:
    """Column-major matrices at an address."""
    if not rows or not columns or not batch:
        return numpy.zeros((batch, rows, columns), d)
    extent = abs(stride) * (batch - 1) + leading * (columns - 1) + rows
    flat = _core.bytes_at(address, extent * d.itemsize).view(d)
    size = d.itemsize
    strides = (stride * size, size, leading * size)
    return numpy.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides)


def gemmStridedBatchedEx(
    handle: int, transa: int, transb: int, m: int, n: int, k: int,
    alpha: int, A: int, Atype: int, lda: int, strideA: int,
    B: int, Btype: int, ldb: int, strideB: int,
    beta: int, C: int, Ctype: int, ldc: int, strideC: int,
    batchCount: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    state = _state(handle)
    if state["device"] != runtime.getDevice():
        raise CUBLASError(14)
    if state["mode"] != CUBLAS_POINTER_MODE_HOST:
        raise NotImplementedError("the stand-in reads alpha and beta on the host only")
    stream._forbid_in_capture()  # setStream raises there
    rows_a, columns_a = (m, k) if transa == CUBLAS_OP_N else (k, m)
    rows_b, columns_b = (k, n) if transb == CUBLAS_OP_N else (n, k)
    if min(m, n, k, batchCount) < 0 or {transa, transb} - {0, 1, 2}:
        raise CUBLASError(7)
    if lda < max(1, rows_a) or ldb < max(1, rows_b) or ldc < max(1, m):
        raise CUBLASError(7)
    if batchCount > 1 and m and n and abs(strideC) < ldc * (n - 1) + m:
        raise CUBLASError(7)  # results of the batch would lie over one another
    if computeType not in _TAKES or Atype != Btype:
        raise CUBLASError(15)
    letter, pairs = _TAKES[computeType]
    if (Atype, Ctype) not in pairs:
        raise CUBLASError(15)
    is_complex = _TYPES[Ctype].kind == "c"
    one, zero = _scalar(alpha, letter, is_complex), _scalar(beta, letter, is_complex)
    if not m or not n or not batchCount:
        return
    if not C or (k and (not A or not B)):
        raise CUBLASError(7)
    wide = numpy.dtype(letter.upper() if is_complex else "f" if letter == "e" else letter)

    def multiply() -> None:
        a = _matrix(A, _TYPES[Atype], rows_a, columns_a, lda, strideA, batchCount).astype(wide)
        b = _matrix(B, _TYPES[Btype], rows_b, columns_b, ldb, strideB, batchCount).astype(wide)
        c = _matrix(C, _TYPES[Ctype], m, n, ldc, strideC, batchCount)
        with numpy.errstate(all="ignore"):
            found = one * (_as_said(a, transa) @ _as_said(b, transb))
            if zero:
                found = found + zero * c.astype(wide)
            c[...] = found.astype(c.dtype)

    _counts.note("product", "gemmEx" if batchCount == 1 else "gemmStridedBatchedEx")
    stream._submit(multiply)


def _as_said(matrices: Any, mode: int) -> Any:
    if mode == CUBLAS_OP_N:
        return matrices
    turned = matrices.swapaxes(1, 2)
    return turned.conj() if mode == CUBLAS_OP_C else turned


def gemmEx(
    handle: int, transa: int, transb: int, m: int, n: int, k: int,
    alpha: int, A: int, Atype: int, lda: int, B: int, Btype: int, ldb: int,
    beta: int, C: int, Ctype: int, ldc: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    gemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0,
        beta, C, Ctype, ldc, 0, 1, computeType, algo,
    )  # fmt: skip
