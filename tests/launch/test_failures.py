"""Kernels that do not compile, launches that fail: which kernel, which shapes; and life goes on."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices.cuda_errors import AcceleratorError, OutOfMemoryError
from lucid_gpu.fusion import cuda_executor
from lucid_gpu.launch import Kernel, cuda, kernel, launchers, nvrtc
from lucid_gpu.launch.compile_errors import CompileError
from tests.fusion.plans import leaf, needs_compiler, op, planned

COPY = """#include "types.cuh"
template <typename T> LUCID_FN void copy(const T* x, T* y, int n)
{
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}
"""
copy = Kernel(COPY, "copy", "const T* x, T* y, int n", template="T")
X, Y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)


class DriverError(RuntimeError):
    pass


@contextmanager
def no_context() -> Iterator[None]:
    yield


class Gpu:
    """A driver whose launches end as the test says."""

    ndarray = object  # of no array here: a launch looks its launcher up each time

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.allowed: list[int] = []
        self.static = 0  # bytes of shared memory a kernel has anyway
        self.error = ""
        kernel = types.SimpleNamespace(ptr=7)
        gpu = self

        class RawKernel:
            def __init__(self) -> None:
                self.kernel = kernel
                self.shared_size_bytes = gpu.static

            def __setattr__(self, name: str, value: Any) -> None:
                if name == "max_dynamic_shared_size_bytes":
                    gpu.allow(value)
                super().__setattr__(name, value)

        self.RawKernel = RawKernel
        self.cuda = types.SimpleNamespace(
            driver=types.SimpleNamespace(launchKernel=self.launch, CUDADriverError=DriverError),
            runtime=types.SimpleNamespace(
                CUDARuntimeError=DriverError, getDevice=lambda: 0, free=lambda _: None
            ),
            Device=lambda index: types.SimpleNamespace(
                attributes=defaultdict(lambda: 4),
                __enter__=lambda self: None,
                __exit__=lambda self, *_: None,
            ),
            get_current_stream=lambda index: types.SimpleNamespace(ptr=0),
        )

    def allow(self, shared: int) -> None:
        if shared > 200_000:
            raise DriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self.allowed.append(shared)

    def launch(self, *arguments: Any) -> None:
        if self.error:
            raise DriverError(self.error)
        self.launches.append(arguments)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """NumPy's arrays count as a GPU's; nothing is computed."""
    driver = Gpu()
    backend = types.SimpleNamespace(
        xp=driver,
        new=np.ndarray,
        address=lambda array: array.ctypes.data,
        only=0,
        get_device=lambda: 0,
    )
    monkeypatch.setattr(cuda, "backend", lambda where: backend)
    monkeypatch.setattr(nvrtc, "load", lambda *_: driver.RawKernel())
    monkeypatch.setattr(launchers, "_launchers", {})
    monkeypatch.setattr(kernel, "device_of", lambda array: device("cuda", 0))
    monkeypatch.setattr(cuda.CudaLauncher, "is_home", lambda self: True)
    monkeypatch.setattr(cuda.CudaLauncher, "at_home", lambda self: no_context())
    monkeypatch.setattr(copy, "_functions", {})
    return driver


def test_a_launch_that_is_refused_says_how_it_was_launched(gpu: Gpu) -> None:
    gpu.error = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch"
    with pytest.raises(AcceleratorError) as caught:
        copy((3, 2), (X, Y, 6), T=dt.float32, threads=(8, 4), shared=64)
    assert str(caught.value) == (
        "CUDA error: the kernel lucid_copy_float32 of float32[2, 3], float32[2, 3] cannot be "
        "launched with grid (3, 2, 1), block (8, 4, 1), 64 bytes of dynamic shared memory: "
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch"
    )


def test_after_a_launch_without_memory_the_next_one_runs(gpu: Gpu) -> None:
    gpu.error = "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match="launch the kernel lucid_copy_float32 of f"):
            copy(1, (X, Y, 6), T=dt.float32)
    gpu.error = ""
    copy(1, (X, Y, 6), T=dt.float32)
    assert len(gpu.launches) == 1


def test_an_illegal_access_names_the_kernel_and_the_end(gpu: Gpu) -> None:
    gpu.error = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
    with pytest.raises(AcceleratorError) as caught:
        copy(1, (X, Y, 6), T=dt.float32)
    assert "an illegal memory access was encountered, noticed while running the kernel" in str(
        caught.value
    )
    assert "lucid_copy_float32 of float32[2, 3]" in str(caught.value)
    assert "start it again" in str(caught.value)


def test_large_shared_memory_is_asked_for_once(gpu: Gpu) -> None:
    for shared in (1000, 48 * 1024, 100_000, 60_000, 120_000):
        copy(1, (X, Y, 6), T=dt.float32, shared=shared)
    assert gpu.allowed == [100_000, 120_000]
    assert [launch[7] for launch in gpu.launches] == [1000, 48 * 1024, 100_000, 60_000, 120_000]
    with pytest.raises(AcceleratorError, match="201000 bytes of dynamic shared memory: CUDA_ERROR"):
        copy(1, (X, Y, 6), T=dt.float32, shared=201_000)


def test_static_and_dynamic_shared_memory_are_counted_together(gpu: Gpu) -> None:
    gpu.static = 4096
    for shared in (44 * 1024, 44 * 1024 + 1):
        copy(1, (X, Y, 6), T=dt.float32, shared=shared)
    assert gpu.allowed == [44 * 1024 + 1]


@needs_compiler
def test_a_family_that_does_not_compile_names_op_and_arrays() -> None:
    bad = Kernel(COPY.replace("x[threadIdx.x]", "z[0]"), "copy", "const T* x, T* y, int n", "T")
    with pytest.raises(CompileError) as caught:
        bad(1, (X, Y, 6), T=dt.float32)
    told = str(caught.value)
    assert "refused the kernel lucid_copy_float32 of float32[2, 3], float32[2, 3]:" in told
    assert "y[threadIdx.x] = z[0];" in told and caught.value.line


@needs_compiler
def test_a_generated_kernel_that_does_not_compile_says_its_shape() -> None:
    plan, arrays, scalars = planned([op("mul", leaf(np.ones((3, 5), np.float32)), 2.0)])
    executable = cuda_executor.Executable(plan)
    kernel = executable.kernel(True)
    broken = kernel._replace(source=kernel.source.replace("v0 *", "v0 times"))
    executable._kernels[True] = broken
    with pytest.raises(CompileError, match=r"refused the kernel lucid_mul over shape \[3, 5\]:"):
        executable(arrays, scalars)


def test_what_is_asked_of_cupy_is_there() -> None:
    """Names and forms of the real package, which imports without a GPU."""
    real = pytest.importorskip("cupy")
    log = 'copy.cu(3): error: identifier "z" is undefined\n'
    told = CompileError("copy", "NVRTC", log, '#line 1 "copy.cu"\na\nb\nz\nd\n')
    assert told.line == 3 and "->    3 | z" in str(told)
    assert hasattr(real.RawKernel, "max_dynamic_shared_size_bytes")
    assert hasattr(real.RawKernel, "shared_size_bytes")
    assert issubclass(real.cuda.driver.CUDADriverError, RuntimeError)
    assert issubclass(real.cuda.runtime.CUDARuntimeError, RuntimeError)
