"""Launches: what a GPU refuses is refused, and is not an error that stays."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np
import pytest
from cupy.cuda import driver as cu

SOURCE = r"""
extern "C" __global__ void marks(int* out, int value)
{
    __shared__ int mine[64];
    extern __shared__ int rest[];
    mine[threadIdx.x % 64] = value;
    rest[0] = value;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = mine[threadIdx.x % 64];
}
extern "C" __global__ void __launch_bounds__(64) narrow(int* out) { out[threadIdx.x] = 1; }
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return cupy.RawModule(code=SOURCE)


def test_a_kernel_runs_with_its_arguments(driver: Any, module: Any) -> None:
    out = cupy.zeros(256, np.int32)
    module.get_function("marks")((2,), (128,), (out, np.int32(11)), shared_mem=4)
    assert (out.get() == 11).all()
    assert driver.counts()["launch marks"] == 1


@pytest.mark.parametrize(
    "grid, block, shared",
    [
        ((0, 1, 1), (1, 1, 1), 4),
        ((1, 65536, 1), (1, 1, 1), 4),
        ((1, 1, 1), (0, 1, 1), 4),
        ((1, 1, 1), (1025, 1, 1), 4),
        ((1, 1, 1), (32, 33, 1), 4),
        ((1, 1, 1), (1, 1, 65), 4),
        ((1, 1, 1), (64, 1, 1), 48 * 1024),  # beside 256 bytes that are static
        ((1, 1, 1), (64, 1, 1), 300_000),
    ],
)
def test_a_launch_beyond_the_limits_is_refused(
    driver: Any, module: Any, grid: Any, block: Any, shared: int
) -> None:
    out = cupy.zeros(64, np.int32)
    kernel = module.get_function("marks").kernel.ptr
    values = ctypes.c_void_p(out.data.ptr), ctypes.c_int(1)
    table = (ctypes.c_void_p * 2)(*[ctypes.addressof(v) for v in values])
    with pytest.raises(cu.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        cu.launchKernel(kernel, *grid, *block, shared, 0, ctypes.addressof(table), 0)
    module.get_function("marks")((1,), (64,), (out, np.int32(5)), shared_mem=4)
    assert (out.get() == 5).all()


def test_more_shared_memory_has_to_be_asked_for(driver: Any) -> None:
    kernel = cupy.RawKernel(SOURCE, "marks")
    out = cupy.zeros(64, np.int32)
    with pytest.raises(cu.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel((1,), (64,), (out, np.int32(1)), shared_mem=100_000)
    kernel.max_dynamic_shared_size_bytes = 100_000
    kernel((1,), (64,), (out, np.int32(3)), shared_mem=100_000)
    assert (out.get() == 3).all()


def test_figures_are_those_of_the_compiled_code(driver: Any, module: Any) -> None:
    marks, narrow = module.get_function("marks"), module.get_function("narrow")
    assert marks.shared_size_bytes == 256
    assert 0 < marks.num_regs <= 255
    assert (marks.max_threads_per_block, narrow.max_threads_per_block) == (1024, 64)
    with pytest.raises(cu.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        narrow((1,), (65,), (cupy.zeros(65, np.int32),))


def test_arguments_are_read_when_the_kernel_is_launched(driver: Any, module: Any) -> None:
    out, value = cupy.zeros(64, np.int32), np.array(4, np.int32)
    kernel = module.get_function("marks")
    cupy.cuda.get_current_stream().synchronize()  # for the zeros, which the other does not wait
    with cupy.cuda.Stream(non_blocking=True) as stream:
        kernel((1,), (64,), (out, value[()]), shared_mem=4)
        value[...] = 9
        assert (out.get(stream) == 4).all()


def test_code_for_another_gpu_is_refused(driver: Any, tmp_path: Any) -> None:
    from lucid_gpu.launch import nvrtc

    path = tmp_path / "kernel.cubin"
    path.write_bytes(nvrtc.compiled('extern "C" __global__ void k() {}', "k", (), 80))
    with pytest.raises(cu.CUDADriverError, match="CUDA_ERROR_NO_BINARY_FOR_GPU"):
        cupy.RawModule(path=str(path)).get_function("k")


def test_of_one_gpu_only_cupys_pool_asks_which_is_current(
    in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCID_DRIVER_DEVICES", "1")
    told = in_process(
        "import driver_standin\n"
        "import lucid_gpu as torch\n"
        "x, w = torch.ones(8, 8, device='cuda'), torch.ones(8, device='cuda')\n"
        "for _ in range(3):\n"
        "    torch.cuda.synchronize()\n"
        "    driver_standin.reset_counts()\n"
        "    y, found = (x + 1).array, driver_standin.counts()\n"
        "print(found['ask for the device'], found['launch lucid_add_kernel'])\n"
    )
    questions, launches = told.split()
    assert int(launches) == 1 and int(questions) <= 2
