"""cupy.cuda.driver: launching a kernel by its address."""

from __future__ import annotations

from typing import Any

from cupy.cuda import runtime

_MEANING = {
    1: "CUDA_ERROR_INVALID_VALUE: invalid argument",
    201: "CUDA_ERROR_INVALID_CONTEXT: invalid device context",
    400: "CUDA_ERROR_INVALID_HANDLE: invalid resource handle",
}


class CUDADriverError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(_MEANING[status])

    def __reduce__(self) -> Any:
        return type(self), (self.status,)


def launchKernel(
    f: int,
    grid_dim_x: int,
    grid_dim_y: int,
    grid_dim_z: int,
    block_dim_x: int,
    block_dim_y: int,
    block_dim_z: int,
    shared_mem_bytes: int,
    stream: int,
    kernel_params: int,
    extra: int,
) -> None:
    from cupy._raw import functions

    if not runtime._has_context():
        raise CUDADriverError(201)
    function = functions.get(f)
    if function is None:
        raise CUDADriverError(400)
    grid = grid_dim_x, grid_dim_y, grid_dim_z
    block = block_dim_x, block_dim_y, block_dim_z
    if not _fits(grid, block, shared_mem_bytes, function) or extra:
        raise CUDADriverError(1)
    function._launch(grid, block, shared_mem_bytes, stream, kernel_params)


def _fits(grid: Any, block: Any, shared: int, function: Any) -> bool:
    most = runtime.getDeviceProperties(0)
    in_grid = all(1 <= n <= top for n, top in zip(grid, most["maxGridSize"]))
    in_block = all(1 <= n <= top for n, top in zip(block, most["maxThreadsDim"]))
    threads = block[0] * block[1] * block[2]
    return (
        in_grid
        and in_block
        and threads <= function.max_threads_per_block
        and 0 <= shared <= function.max_dynamic_shared_size_bytes
    )


def get_build_version() -> int:
    return 12090
