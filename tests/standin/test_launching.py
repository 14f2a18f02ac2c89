"""Launches as strict as CUDA's, and cuBLAS's checks."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

SQUARE = """
extern "C" __global__ void square(const float* x, float* y, int n) {
    extern __shared__ float tile[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = tile[threadIdx.x] * tile[threadIdx.x];
}
"""


def test_a_kernel_runs_its_source(cupy: Any) -> None:
    kernel = cupy.RawKernel(SQUARE, "square")
    x = cupy.arange(100, dtype="f")
    y = cupy.empty_like(x)
    kernel((2,), (64,), (x, y, np.int32(100)), shared_mem=256)
    assert np.array_equal(y.get(), np.arange(100, dtype="f") ** 2)


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [((0,), (1,), 0), ((1, 65536), (1,), 0), ((1,), (1025,), 0), ((1,), (1, 1, 65), 0),
     ((1,), (1,), 48 * 1024 + 1)],
)  # fmt: skip
def test_sizes_beyond_cudas_limits_are_refused(
    cupy: Any, grid: Any, block: Any, shared: int
) -> None:
    x = cupy.zeros(1, "f")
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        cupy.RawKernel(SQUARE, "square")(grid, block, (x, x, np.int32(1)), shared_mem=shared)


def test_more_shared_memory_is_had_by_asking(cupy: Any) -> None:
    kernel = cupy.RawKernel(SQUARE, "square")
    kernel.max_dynamic_shared_size_bytes = 100 * 1024
    x = cupy.ones(1, "f")
    kernel((1,), (1,), (x, x, np.int32(1)), shared_mem=100 * 1024)
    with pytest.raises(cupy.cuda.driver.CUDADriverError):
        kernel.max_dynamic_shared_size_bytes = 228 * 1024


def test_a_thread_without_a_context_cannot_launch(cupy: Any) -> None:
    ptr = cupy.RawKernel(SQUARE, "square").kernel.ptr
    found: list[Any] = []

    def launch() -> None:
        try:
            cupy.cuda.driver.launchKernel(ptr, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        except cupy.cuda.driver.CUDADriverError as error:
            found.append(str(error))

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert "CUDA_ERROR_INVALID_CONTEXT" in found[0]


def test_a_source_that_does_not_compile_says_where(cupy: Any) -> None:
    with pytest.raises(cupy.cuda.compiler.CompileException, match="error"):
        cupy.RawKernel('extern "C" __global__ void f() { nonsense; }', "f").kernel


def _gemm(cupy: Any, a: Any, b: Any, c: Any, **other: Any) -> None:
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    n, k, m = b.shape[1], b.shape[0], a.shape[0]
    given = {"lda": n, "ldb": k, "ldc": n, "ctype": 0} | other
    cublas.gemmEx(
        get_cublas_handle(), 0, 0, n, m, k, ctypes.addressof(one),
        b.data.ptr, 0, given["lda"], a.data.ptr, 0, given["ldb"],
        ctypes.addressof(zero), c.data.ptr, given["ctype"], given["ldc"], 68, -1,
    )  # fmt: skip


def test_cublas_multiplies_from_addresses(cupy: Any) -> None:
    a = cupy.arange(6, dtype="f").reshape(2, 3)
    b = cupy.arange(12, dtype="f").reshape(3, 4)
    c = cupy.empty((2, 4), "f")
    _gemm(cupy, a, b, c)
    assert np.array_equal(c.get(), a.get() @ b.get())


@pytest.mark.parametrize("wrong", [{"lda": 3}, {"ldb": 2}, {"ldc": 3}, {"ctype": 1}])
def test_cublas_refuses_what_does_not_fit(cupy: Any, wrong: Any) -> None:
    from cupy_backends.cuda.libs import cublas

    a, b, c = cupy.ones((2, 3), "f"), cupy.ones((3, 4), "f"), cupy.ones((2, 4), "f")
    with pytest.raises(cublas.CUBLASError):
        _gemm(cupy, a, b, c, **wrong)
