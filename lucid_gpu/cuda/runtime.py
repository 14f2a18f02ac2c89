"""The CUDA runtime as ``torch.cuda.cudart()`` gives it, and what is set per process."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu.compat.refused import refused
from lucid_gpu.cuda.gpus import cupy, device_count, index_of
from lucid_gpu.cuda.streams import ExternalStream, Stream, current_stream
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.ops.generator import Generator, default_generator

__all__ = [
    "CUDAPluggableAllocator",
    "CudaError",
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "check_error",
    "cudaStatus",
    "cudart",
    "current_blas_handle",
    "default_generators",
    "get_allocator_backend",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "ipc_collect",
    "memory_snapshot",
    "set_sync_debug_mode",
    "use_mem_pool",
]


class cudaStatus(enum.IntEnum):
    """Numbers of errors of the runtime, under PyTorch's names."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


class CudaError(RuntimeError):
    """An error of the CUDA runtime.

    Parameters
    ----------
    code : int
    """

    def __init__(self, code: int) -> None:
        name = cupy().cuda.runtime.getErrorString(int(code))
        super().__init__(f"{name} ({int(code)})")


def check_error(res: int) -> None:
    """Raise `CudaError` unless a function of the runtime succeeded."""
    if int(res) != cudaStatus.SUCCESS:
        raise CudaError(res)


class _Runtime:
    """Functions of the runtime under their own names (``cudaMemGetInfo``)."""

    cudaError = cudaStatus

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        ours = name.removeprefix("cuda")
        function = getattr(self._runtime, ours[:1].lower() + ours[1:], None)
        if not name.startswith("cuda") or not callable(function):
            raise AttributeError(f"cuda.cudart() has no function {name!r}")

        def called(*arguments: Any) -> Any:
            result = function(*arguments)
            return cudaStatus.SUCCESS if result is None else result

        return called


def cudart() -> _Runtime:
    """The CUDA runtime: ``cudart().cudaMemGetInfo()``.

    What only succeeds returns ``cudaStatus.SUCCESS``, what fails raises CuPy's error. RuntimeError
    if there is no GPU.
    """
    return _Runtime(cupy().cuda.runtime)


def current_blas_handle() -> int:
    """The address of cuBLAS's handle for the current GPU."""
    return int(cupy().cuda.device.get_cublas_handle())


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """The stream of another library, by its address."""
    return ExternalStream(data_ptr, device)


_taken: dict[int, Any] = {}  # by address, what `caching_allocator_alloc` gave


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Return the address of new memory of the pool, for other libraries.

    Parameters
    ----------
    size : int
        In bytes.
    device : device, str or int, optional
        The current GPU if left out.
    stream : Stream or int, optional
        The memory is used on it, the current one if left out; an int is its address.

    Raises
    ------
    TypeError
        For another stream.
    """
    index = index_of(device)
    if stream is None:
        stream = current_stream(index)
    elif isinstance(stream, int):
        stream = ExternalStream(stream, index)
    elif not isinstance(stream, Stream):
        raise TypeError(
            "Invalid type for stream argument, must be `torch.cuda.Stream` or `int` representing a "
            f"pointer to a existing stream, got {type(stream).__name__}"
        )
    with on_gpu(cupy().cuda, index), stream._cupy:
        memory = cupy().cuda.alloc(size)
    _taken[memory.ptr] = memory
    return int(memory.ptr)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give the memory at ``mem_ptr``, of `caching_allocator_alloc`, back to the pool.

    Raises
    ------
    ValueError
        For another address.
    """
    if _taken.pop(mem_ptr, None) is None:
        raise ValueError(
            f"caching_allocator_delete({mem_ptr:#x}): no memory of caching_allocator_alloc is there"
        )


def ipc_collect() -> None:
    """Do nothing: tensors on a GPU are sent to other processes by value."""


def get_allocator_backend() -> str:
    """Who allocates: "native", CuPy's pool."""
    return "native"


def get_sync_debug_mode() -> int:
    """Whether waiting for a GPU is reported: 0, it is not."""
    return 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Accept "default" and 0; NotImplementedError for others: waiting is not reported."""
    if debug_mode not in (0, "default"):
        raise NotImplementedError(
            f"cuda.set_sync_debug_mode({debug_mode!r}): waiting for a GPU is not reported; "
            "profiler.profile() shows it as gaps between kernels"
        )


class _Generators(Sequence[Generator]):
    """The default generator once for each GPU: one stream of numbers serves all devices."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: Any) -> Any:
        return ((default_generator,) * len(self))[index]

    def __iter__(self) -> Iterator[Generator]:
        return iter((default_generator,) * len(self))


default_generators = _Generators()

_POOL = "memory comes from CuPy's pool; set it with cupy.cuda.set_allocator"
CUDAPluggableAllocator = refused("cuda.CUDAPluggableAllocator", _POOL)
change_current_allocator = refused("cuda.change_current_allocator", _POOL)
MemPool = refused("cuda.MemPool", _POOL)
use_mem_pool = refused("cuda.use_mem_pool", _POOL)
memory_snapshot = refused(
    "cuda.memory_snapshot", "the pool keeps no list of blocks; ask cuda.memory_stats()"
)
