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
import math
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import installing
from lucid_gpu.devices.cuda_errors import explained
from lucid_gpu.devices.precision import matmul as precision
from lucid_gpu.devices.reordering import in_rows

_AS_IS, _TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
_ANY_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
_DEFAULT_MATH, _EXACT_REDUCTION = 0, 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_LONGEST = 2**31 - 1  # cuBLAS takes leading dimensions as int

IN_FLOAT16, _IN_FLOAT32, _IN_TF32, _IN_FLOAT64 = 64, 68, 77, 70  # CUBLAS_COMPUTE_*

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


class Layout(NamedTuple):
    """How cuBLAS takes a batch of matrices.

    ``leading`` is the distance of rows, ``step`` that of matrices, both in elements. ``mode`` says
    whether the rows in memory are the matrix's columns.
    """

    mode: int
    leading: int
    step: int


class Plan(NamedTuple):
    """A product: ``batch`` times (m, k) and (k, n)."""

    a: Layout
    b: Layout
    m: int
    n: int
    k: int
    batch: int


class Call(NamedTuple):
    """A call of cuBLAS: its arguments but for the handle and the addresses, which stand between
    these, and the math mode.

    ``name`` is of the function, as CuPy's binding has it.
    """

    name: str
    start: tuple[int, ...]
    of_b: tuple[int, ...]
    of_a: tuple[int, ...]
    zero: int
    end: tuple[int, ...]
    mode: int


Numbers = tuple[int, ...]


def shape_of(a: Numbers, b: Numbers) -> Numbers:
    """The shape of a product of arrays of these shapes."""
    lead, other = a[:-2], b[:-2]
    if other and lead != other:  # NumPy's function costs as much as the whole call
        lead = np.broadcast_shapes(lead, other)
    return (*lead, a[-2], b[-1])


def multiply(xp: Any, a: Any, b: Any, out: Any, kind: str) -> None:
    """Fill ``out`` with ``a @ b``.

    Parameters
    ----------
    xp : module
        What copies an array whose strides cuBLAS cannot take.
    a, b : array, shape (..., m, k) and (..., k, n)
        Leading dimensions broadcast.
    out : array, shape (..., m, n), row-major
    kind : str
        The type of all three, among `TYPES`; ``out`` of 16-bit operands may be float32.

    Raises
    ------
    RuntimeError
        If a dimension is longer than cuBLAS can be told.
    """
    size, lead = a.itemsize, out.shape[:-2]
    layouts = (a.shape, a.strides, b.shape, b.strides, lead)
    call = _call(plan, layouts, size, kind, out.itemsize > size, precision._chosen)
    if call is not None:
        _run(call, a, b, out)
    elif not _is_nothing(a, out):
        multiply(xp, _taken(xp, a, lead), _taken(xp, b, lead), out, kind)


def multiply_rows(xp: Any, a: Any, b: Any, out: Any, kind: str) -> None:
    """Fill ``out`` with ``a.T @ b`` of matrices that hold all rows of arrays.

    Parameters
    ----------
    xp, kind
        See `multiply`.
    a, b : array, shape (..., m) and (..., n)
        As many rows in both.
    out : array, shape (m, n), row-major

    Raises
    ------
    RuntimeError
        If a dimension is longer than cuBLAS can be told.
    """
    size, layouts = a.itemsize, (a.shape, a.strides, b.shape, b.strides)
    call = _call(plan_of_rows, layouts, size, kind, out.itemsize > size, precision._chosen)
    if call is not None:
        _run(call, a, b, out)
    elif not _is_nothing(a, out):
        multiply_rows(xp, in_rows(xp, a), in_rows(xp, b), out, kind)


def _is_nothing(a: Any, out: Any) -> bool:
    """Whether a product has no elements, or they are sums of nothing, which it is filled with."""
    if a.size and out.size:
        return False
    if out.size:
        out[...] = 0
    return True


@functools.lru_cache(maxsize=4096)
def _call(
    planned: Any, layouts: tuple[Numbers, ...], size: int, kind: str, widened: bool, chosen: Any
) -> Call | None:
    """The call for arrays of these shapes and strides; None where one has to be copied, and where
    nothing is multiplied.

    ``widened`` says that the result is float32, ``chosen`` is what `precision` holds.
    """
    product: Plan | None = planned(*layouts, size)
    if product is None:
        return None
    left, right, m, n, k, batch = product
    if not m * n * k * batch:
        return None
    result = number = TYPES[kind]
    compute, mode, (one, zero) = arithmetic(kind)
    if widened:
        result, compute, (one, zero) = TYPES["float32"], _IN_FLOAT32, _SINGLE
    # cuBLAS, being column-major, finds (a b)^T = b^T a^T
    start, of_result = (right.mode, left.mode, n, m, k, one), (result, n)
    of_b: Numbers = (number, right.leading)
    of_a: Numbers = (number, left.leading)
    last = (compute, _ANY_ALGORITHM)
    if batch == 1:
        return Call("gemmEx", start, of_b, of_a, zero, (*of_result, *last), mode)
    of_b, of_a = (*of_b, right.step), (*of_a, left.step)
    end = (*of_result, m * n, batch, *last)
    return Call("gemmStridedBatchedEx", start, of_b, of_a, zero, end, mode)


@functools.lru_cache(maxsize=4096)
def plan(
    a: Numbers, a_strides: Numbers, b: Numbers, b_strides: Numbers, lead: Numbers, size: int
) -> Plan | None:
    """The product of arrays of these shapes and strides; None where one has to be copied."""
    m, n, k = a[-2], b[-1], b[-2]
    _check_lengths(a, b, m, n, k, math.prod(lead))
    right = layout(b, b_strides, lead, size)
    if right is None:
        return None
    if len(b) == 2:  # one tall matrix, where its rows lie in one stride
        rows = _merged(a[:-1], [stride // size for stride in a_strides[:-1]])
        tall = (
            rows
            and rows[0] <= _LONGEST
            and layout((rows[0], k), (rows[1] * size, a_strides[-1]), (), size)
        )
        if rows and tall:
            return Plan(tall, right, rows[0], n, k, 1)
    left = layout(a, a_strides, lead, size)
    return left and Plan(left, right, m, n, k, math.prod(lead))


def plan_of_rows(
    a: Numbers, a_strides: Numbers, b: Numbers, b_strides: Numbers, size: int
) -> Plan | None:
    """The product of `multiply_rows`; None where an array has to be copied."""
    m, n, k = a[-1], b[-1], math.prod(a[:-1])
    _check_lengths(a, b, m, n, k)
    of_a = _merged(a[:-1], [stride // size for stride in a_strides[:-1]])
    of_b = _merged(b[:-1], [stride // size for stride in b_strides[:-1]])
    if of_a is None or of_b is None:
        return None
    left = layout((m, k), (a_strides[-1], of_a[1] * size), (), size)
    right = layout((k, n), (of_b[1] * size, b_strides[-1]), (), size)
    return left and right and Plan(left, right, m, n, k, 1)


def _check_lengths(a: Numbers, b: Numbers, *lengths: int) -> None:
    if max(lengths) > _LONGEST:
        raise RuntimeError(
            f"matmul: cuBLAS takes at most {_LONGEST} rows, columns and matrices, got shapes "
            f"{list(a)} and {list(b)}; multiply parts of them"
        )


def layout(shape: Numbers, strides: Numbers, lead: Numbers, size: int) -> Layout | None:
    """How cuBLAS takes matrices broadcast over ``lead``; None where it cannot."""
    steps = [stride // size for stride in strides]
    matrix = _matrix(*shape[-2:], *steps[-2:])
    missing = len(lead) - len(shape) + 2
    batch = [0] * missing + [s if n > 1 else 0 for n, s in zip(shape[:-2], steps[:-2])]
    merged = _merged(lead, batch)
    return Layout(*matrix, merged[1]) if matrix and merged else None


def _matrix(rows: int, columns: int, row: int, column: int) -> tuple[int, int] | None:
    """The mode and leading dimension of matrices with these steps."""
    if (column == 1 or columns == 1) and (rows == 1 or columns <= row <= _LONGEST):
        return _AS_IS, max(columns if rows == 1 else row, 1)
    if (row == 1 or rows == 1) and (columns == 1 or rows <= column <= _LONGEST):
        return _TRANSPOSED, max(rows if columns == 1 else column, 1)
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


def _taken(xp: Any, array: Any, lead: Numbers) -> Any:
    """An array that `layout` takes: itself, its matrices copied, or the whole batch."""
    size = array.itemsize
    if _matrix(*array.shape[-2:], *[stride // size for stride in array.strides[-2:]]) is None:
        array = in_rows(xp, array)
    if layout(array.shape, array.strides, lead, size) is None:
        array = in_rows(xp, xp.broadcast_to(array, lead + array.shape[-2:]))
    return array


def arithmetic(kind: str) -> tuple[int, int, tuple[int, int]]:
    """The compute type, the math mode, and the addresses of the factors 1 and 0."""
    if kind in ("float64", "complex128"):
        return _IN_FLOAT64, _DEFAULT_MATH, _DOUBLE
    if kind == "float16" and precision.allow_fp16_accumulation:
        return IN_FLOAT16, _DEFAULT_MATH, _HALF
    if kind == "float16":
        may_round = precision.allow_fp16_reduced_precision_reduction
        return _IN_FLOAT32, _DEFAULT_MATH if may_round else _EXACT_REDUCTION, _SINGLE
    if kind == "bfloat16":
        may_round = precision.allow_bf16_reduced_precision_reduction
        return _IN_FLOAT32, _DEFAULT_MATH if may_round else _EXACT_REDUCTION, _SINGLE
    return _IN_TF32 if precision.allow_tf32 else _IN_FLOAT32, _DEFAULT_MATH, _SINGLE


class _Handle:
    """A handle of cuBLAS, for one thread and device, which nobody else knows.

    Attributes
    ----------
    of : int
        Its address.
    mode : int
        Its math mode; pointers are to the host.
    """

    def __init__(self, cublas: Any) -> None:
        self.of: int = cublas.create()
        self.mode, self._destroy = _DEFAULT_MATH, cublas.destroy

    def __del__(self) -> None:
        if not sys.is_finalizing():  # the driver may be gone
            self._destroy(self.of)


class _Thread(threading.local):
    """The calling thread's handles, by device."""

    def __init__(self) -> None:
        self.handles: dict[int, _Handle] = {}


_thread = _Thread()


@functools.cache
def _library() -> tuple[Any, dict[str, Any], Any]:
    """CuPy's binding of cuBLAS, its functions that multiply, and how they fail."""
    from cupy.cuda import runtime

    cublas = installing.binding("cublas")
    names = "gemmEx", "gemmStridedBatchedEx"
    return (
        cublas,
        {name: getattr(cublas, name) for name in names},
        (cublas.CUBLASError, runtime.CUDARuntimeError),
    )


# Gives what takes the calling thread's products in the place of our handle, if anything does.
taken: Callable[[], Any] | None = None


def take(by: Callable[[], Any] | None) -> None:
    """Ask ``by`` from now on who takes a thread's products; None asks nobody."""
    global taken
    taken = by


def _run(call: Call, a: Any, b: Any, out: Any) -> None:
    """Have cuBLAS multiply arrays of the current device on its current stream."""
    name, start, of_b, of_a, zero, end, mode = call
    arguments = (*start, b.data.ptr, *of_b, a.data.ptr, *of_a, zero, out.data.ptr, *end)
    taker = None if taken is None else taken()
    if taker is not None:
        taker.product(name, arguments, mode)
        return
    cublas, functions, failures = _library()
    try:
        index, handles = out.data.device_id, _thread.handles
        handle = handles[index] if index in handles else handles.setdefault(index, _Handle(cublas))
        if handle.mode != mode:
            cublas.setMathMode(handle.of, mode)
            handle.mode = mode
        functions[name](handle.of, *arguments)
    except failures as error:
        raise explained(error) from error
