"""Products with a bias in their epilogue, by cuBLASLt, where a program prefers that library.

A linear layer's bias is added before its product is stored, and the bias's gradient is summed by
the product that gives the weight's: two kernels less that would read or write what products do.
What cuBLASLt does not take (types, strides, or no algorithm for a shape) is left to `gemm`.

`prefer` is behind `lucid_gpu.backends.cuda.preferred_blas_library`. Nothing here has run on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
from threading import RLock
from typing import Any, NamedTuple

from lucid_gpu.devices import gemm, installing

__all__ = ["BIAS", "SUMS", "multiply", "prefer", "preferred"]

preferred = os.environ.get("TORCH_BLAS_PREFER_CUBLASLT") == "1"

BIAS, SUMS = 4, 512  # CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB
TYPES = ("float16", "bfloat16", "float32")
LARGEST_WORKSPACE = 32 << 20  # bytes

# Attributes of cublasLtMatmulDesc_t and cublasLtMatmulPreference_t, as cublasLt.h numbers them.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
WORKSPACE_BYTES, REDUCTIONS, ALIGNMENT_A = 1, 3, 5  # then of B, C and D
EXACT_REDUCTIONS = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: partial sums in float32
_NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED
_ALIGNED = 256  # bytes; more makes no difference
_SINGLE = 0  # CUDA_R_32F, the type of the factors


class Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``: an algorithm, and the workspace that it needs."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Plan(NamedTuple):
    """A product as cuBLASLt knows it: its descriptor, the layouts of a, b and the result."""

    descriptor: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]
    choice: Heuristic


class _Key(NamedTuple):
    """What a plan depends on."""

    device: int
    kind: str
    product: gemm.Plan
    epilogue: int
    alignments: tuple[int, ...]  # of a, b and the result as cuBLASLt calls them, and of the vector
    compute: int
    exact: bool


_plans: dict[_Key, Plan | None] = {}
_MOST_PLANS = 1024
_lock = RLock()  # a descriptor holds the vector's address from its setting to the call


def prefer(wanted: bool) -> None:
    """Whether linear layers ask cuBLASLt first."""
    global preferred
    preferred = wanted


def multiply(xp: Any, a: Any, b: Any, out: Any, vector: Any, kind: str, epilogue: int) -> bool:
    """Fill ``out`` with ``a @ b``, if cuBLASLt takes it; returns whether it did.

    Parameters
    ----------
    xp : module
    a, b, out : array, shapes (m, k), (k, n) and (m, n)
        On the current device; ``out`` is row-major.
    vector : array
        With `BIAS`, shape (n,): what is added to each row of the product. With `SUMS`, shape (m,):
        is filled with the sums of ``a``'s rows.
    kind : str
        The type of all.
    epilogue : int
    """
    if kind not in TYPES or not (out.size and a.shape[1]) or not vector.flags.c_contiguous:
        return False
    compute, exact, factors = gemm.arithmetic(kind)
    if compute == gemm.IN_FLOAT16:
        return False
    product = gemm.plan(a.shape, a.strides, b.shape, b.strides, (), out.itemsize)
    if product is None:
        return False
    places = b.data.ptr, a.data.ptr, out.data.ptr, vector.data.ptr
    alignments = tuple([min(_ALIGNED, place & -place) for place in places])
    key = _Key(out.data.device_id, kind, product, epilogue, alignments, compute, bool(exact))
    with _lock:
        known = key in _plans
        plan = _plans[key] if known else None
        handle, stream, taker = _here(key.device)
        if not known:
            if len(_plans) >= _MOST_PLANS:
                _forget()
            plan = _plans[key] = _planned(handle, key, vector.data.ptr)
        if plan is None:
            return False
        workspace = xp.empty(plan.choice.workspace, "u1") if plan.choice.workspace else None
        _run(handle, stream, plan, places, factors, workspace)
    if taker is not None:
        taker.names.append(f"matmul {[product.m, product.n]}")
    return True


def _run(
    handle: Any, stream: int, plan: Plan, places: tuple[int, ...], factors: Any, workspace: Any
) -> None:
    of_a, of_b, of_result = plan.layouts
    b, a, out, vector = places
    size = 0 if workspace is None else workspace.nbytes
    _set(plan.descriptor, BIAS_POINTER, ctypes.c_void_p(vector))
    one, zero = factors
    _must(
        "cublasLtMatmul",
        _library().cublasLtMatmul(
            handle, plan.descriptor, one, b, of_a, a, of_b, zero, out, of_result, out, of_result,
            ctypes.byref(plan.choice), workspace.data.ptr if size else None, size, stream,
        ),
    )  # fmt: skip


def _here(device: int) -> tuple[Any, int, Any]:
    """The handle, the stream, and who takes the products that it is given, if anybody does.

    That has a handle of cuBLAS's, which is one of cuBLASLt's.
    """
    from cupy.cuda import get_current_stream

    taker = None if gemm.taken is None else gemm.taken()
    handle = _handle(device) if taker is None else taker.blas_handle
    return ctypes.c_void_p(handle), get_current_stream().ptr, taker


@functools.cache
def _handle(device: int) -> int:
    made = ctypes.c_void_p()
    _must("cublasLtCreate", _library().cublasLtCreate(ctypes.byref(made)))
    assert made.value is not None
    return made.value


def _planned(handle: Any, key: _Key, vector: int) -> Plan | None:
    """The library's first choice; None where it has none."""
    library, product = _library(), key.product
    left, right, m, n, k, _ = product
    number = gemm.TYPES[key.kind]
    descriptor = _made(library.cublasLtMatmulDescCreate, key.compute, _SINGLE)
    _set(descriptor, TRANSPOSE_A, ctypes.c_int32(right.mode))
    _set(descriptor, TRANSPOSE_B, ctypes.c_int32(left.mode))
    _set(descriptor, EPILOGUE, ctypes.c_uint32(key.epilogue))
    _set(descriptor, BIAS_POINTER, ctypes.c_void_p(vector))
    # Column-major: cuBLASLt finds the transposed product, as `gemm` has cuBLAS find it.
    layout = functools.partial(_made, library.cublasLtMatrixLayoutCreate, number)
    layouts = (
        layout(*_stored(n, k, right.mode), right.leading),
        layout(*_stored(k, m, left.mode), left.leading),
        layout(n, m, n),
    )
    wishes = _made(library.cublasLtMatmulPreferenceCreate)
    choice, count = Heuristic(), ctypes.c_int()
    try:
        _wish(wishes, WORKSPACE_BYTES, ctypes.c_uint64(LARGEST_WORKSPACE))
        if key.exact:
            _wish(wishes, REDUCTIONS, ctypes.c_uint32(EXACT_REDUCTIONS))
        of_a, of_b, of_result, _ = key.alignments
        for i, alignment in enumerate((of_a, of_b, of_result, of_result)):
            _wish(wishes, ALIGNMENT_A + i, ctypes.c_uint32(alignment))
        status = library.cublasLtMatmulAlgoGetHeuristic(
            handle, descriptor, *layouts, layouts[-1], wishes, 1,
            ctypes.byref(choice), ctypes.byref(count),
        )  # fmt: skip
    finally:
        library.cublasLtMatmulPreferenceDestroy(wishes)
    plan = Plan(descriptor, layouts, choice)
    if status == 0 and count.value and choice.state == 0:
        return plan
    _destroy(plan)
    if status not in (0, _NOT_SUPPORTED):
        _must("cublasLtMatmulAlgoGetHeuristic", status)
    return None


def _stored(rows: int, columns: int, mode: int) -> tuple[int, int]:
    """Rows and columns of a matrix as it lies, which an operation may transpose."""
    return (columns, rows) if mode else (rows, columns)


def _forget() -> None:
    for plan in _plans.values():
        if plan is not None:
            _destroy(plan)
    _plans.clear()


def _destroy(plan: Plan) -> None:
    library = _library()
    library.cublasLtMatmulDescDestroy(plan.descriptor)
    for layout in plan.layouts:
        library.cublasLtMatrixLayoutDestroy(layout)


def _made(create: Any, *arguments: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _must(create.__name__, create(ctypes.byref(made), *arguments))
    return made


def _set(descriptor: Any, attribute: int, value: Any) -> None:
    size = ctypes.sizeof(value)
    status = _library().cublasLtMatmulDescSetAttribute(
        descriptor, attribute, ctypes.byref(value), size
    )
    _must("cublasLtMatmulDescSetAttribute", status)


def _wish(wishes: Any, attribute: int, value: Any) -> None:
    size = ctypes.sizeof(value)
    status = _library().cublasLtMatmulPreferenceSetAttribute(
        wishes, attribute, ctypes.byref(value), size
    )
    _must("cublasLtMatmulPreferenceSetAttribute", status)


def _must(name: str, status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error: {name} failed with status {status}")


@functools.cache
def _library() -> Any:
    """The library beneath the cuBLAS that CuPy's own binding is linked with."""
    return bound(ctypes.CDLL(installing.binding("cublas").__file__))


def bound(library: Any) -> Any:
    """A library whose functions know the types of their arguments."""
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    extent, attribute = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, size)
    library.cublasLtCreate.argtypes = (pointer,)
    library.cublasLtMatmulDescCreate.argtypes = (pointer, number, number)
    library.cublasLtMatmulDescDestroy.argtypes = (pointer,)
    library.cublasLtMatmulDescSetAttribute.argtypes = attribute
    library.cublasLtMatrixLayoutCreate.argtypes = (pointer, number, extent, extent, ctypes.c_int64)
    library.cublasLtMatrixLayoutDestroy.argtypes = (pointer,)
    library.cublasLtMatmulPreferenceCreate.argtypes = (pointer,)
    library.cublasLtMatmulPreferenceDestroy.argtypes = (pointer,)
    library.cublasLtMatmulPreferenceSetAttribute.argtypes = attribute
    library.cublasLtMatmulAlgoGetHeuristic.argtypes = (*[pointer] * 7, number, pointer, pointer)
    library.cublasLtMatmul.argtypes = (*[pointer] * 14, size, pointer)
    return library
