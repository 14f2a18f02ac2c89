"""What a graph runs on a GPU: CUDA graphs captured from a stream, and calls made between them.

While a `StreamCapture` is under way, the thread's current stream runs nothing: CUDA keeps what it
is given, kernels, copies and products alike. Memory comes from a pool of the graph's own, so that
every address stays what it was. What a replay has to ask Python for, as a draw or a learning rate,
is a call: the stream's graph ends before it, and another one begins after it.

CuPy refuses to call cuBLAS on such a stream, so products go to the library by `product`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, partial
from typing import Any

from lucid_gpu.devices import block_counters, cuda_memory, installing
from lucid_gpu.devices.current_gpu import on_gpu

WORKSPACE = 32 << 20  # bytes for cuBLAS, its own choice on GPUs from compute capability 9.0 on
SMALL_WORKSPACE = 8 << 20  # on others
_NO_MEMORY = 2  # cudaErrorMemoryAllocation


class StreamCapture:
    """A capture of the current GPU's work by the calling thread.

    Parameters
    ----------
    cupy : module

    Attributes
    ----------
    index : int
        The GPU.
    names : list of str
        What was captured, for a person.
    """

    def __init__(self, cupy: Any) -> None:
        self.cuda = cupy.cuda
        self.array_type = cupy.ndarray
        self.index: int = cupy.cuda.runtime.getDevice()
        self.names: list[str] = []
        self.outer = cupy.cuda.get_current_stream()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.pool = cupy.cuda.MemoryPool(partial(_from_device, cupy))
        self._reserved = 0  # bytes of the pool
        self.made: set[int] = set()  # addresses of the memory that the capture was given
        self.held: dict[int, Any] = {}  # other memory that it reads, by address
        self.pieces: list[Callable[[], Any]] = []
        self._open = False  # whether a piece is being captured
        self.depth = 0  # how often it was suspended and not resumed
        self._before: Any = None  # what replays wait for, the first time
        self._inside = ExitStack()
        self._blas = _blas()
        self.blas_handle = self._blas.handle(self.index)
        large = int(cupy.cuda.Device(self.index).compute_capability) >= 90
        self._allocate = self._allocator(cupy)
        with cupy.cuda.using_allocator(self._allocate), self.stream:
            self.workspace = cupy.empty(WORKSPACE if large else SMALL_WORKSPACE, "u1")
            self.counters = cupy.zeros(block_counters.MOST, "u4")
        self.stream.synchronize()  # the first replay, on some other stream, finds zeros
        self._enter()
        try:
            self._begin_piece()
        except BaseException:
            self._leave()
            raise

    def _allocator(self, cupy: Any) -> Callable[[int], Any]:
        allocate = cuda_memory.allocator(cupy, self.pool)

        def take(size: int) -> Any:
            memory = allocate(size)
            if memory.device_id != self.index:  # refused when it is used
                return memory
            reserved = self.pool.total_bytes()
            if reserved < self._reserved:  # to find room, the pool gave back what kernels write
                raise RuntimeError(
                    f"out of memory during a graph capture: {size} bytes were found only by giving "
                    "back memory that the graph uses; free some before the capture, or capture less"
                )
            self._reserved = reserved
            if memory.mem.ptr:
                self.made.add(memory.mem.ptr)
            return memory

        return take

    def _enter(self) -> None:
        with on_gpu(self.cuda, self.index):
            self._inside.enter_context(self.cuda.using_allocator(self._allocate))
            self._inside.enter_context(self.stream)
            own = block_counters.counters_for(self.index, self.stream, self.counters)
            self._inside.enter_context(own)

    def _leave(self) -> None:
        with on_gpu(self.cuda, self.index):  # CuPy has a current stream for each
            self._inside.close()

    # --- whose memory ----------------------------------------------------------------------------

    def is_array(self, value: Any) -> bool:
        """Whether a value is an array of this kind of device."""
        return type(value) is self.array_type

    def is_made(self, array: Any) -> bool:
        """Whether an array's memory was allocated by what is captured."""
        return array.data.mem.ptr in self.made

    def give(self, array: Any) -> None:
        """Take memory that was allocated elsewhere for the graph's own."""
        self.made.add(array.data.mem.ptr)

    def hold(self, array: Any) -> bool:
        """Keep memory that was there before as long as the graph; whether that is new."""
        address = array.data.mem.ptr
        if address in self.held:
            return False
        self.held[address] = array.data  # not the array: who counts its references sees no other
        return True

    def places(self) -> set[int]:
        """The addresses of all memory that it uses."""
        return self.made.union(self.held)

    # --- pieces ----------------------------------------------------------------------------------

    def suspend(self) -> None:
        """What comes is done at once, on the stream that was current before."""
        self.depth += 1
        if self.depth == 1:
            self._leave()

    def resume(self) -> None:
        """Go on capturing."""
        self.depth -= 1
        if self.depth == 0:
            self._enter()

    def interrupt(self, call: Callable[[], Any]) -> None:
        """End a piece; a call that every replay makes comes after it, and then another piece."""
        self._end_piece()
        self.pieces.append(call)
        self._begin_piece()

    def _begin_piece(self) -> None:
        self.stream.begin_capture()
        self._open = True

    def _end_piece(self) -> None:
        self._open = False  # also where that fails
        self.pieces.append(self.stream.end_capture().launch)

    def end(self) -> None:
        """End the capture."""
        self._end_piece()
        self._leave()
        self._before = self.outer.record()

    def abandon(self) -> None:
        """Drop what was captured."""
        self._leave()
        self.pieces.clear()
        if self._open:
            self._open = False
            with suppress(self.cuda.runtime.CUDARuntimeError):  # how one that was spoilt ends
                self.stream.end_capture()

    def run(self) -> None:
        """Start it all on the current stream."""
        with on_gpu(self.cuda, self.index):
            if self._before is not None:
                self.cuda.get_current_stream().wait_event(self._before)
                self._before = None
            for piece in self.pieces:
                piece()

    # --- products --------------------------------------------------------------------------------

    def product(self, name: str, arguments: tuple[Any, ...], mode: int) -> None:
        """Have cuBLAS multiply on the captured stream; see `lucid_gpu.devices.gemm`."""
        self.names.append(f"matmul {[arguments[3], arguments[2]]}")
        self._blas.multiply(
            self.blas_handle, self.stream.ptr, self.workspace, name, arguments, mode
        )


def _from_device(cupy: Any, size: int) -> Any:
    """New memory for a graph's pool; where there is none, the usual pool gives back what is free.

    It comes before the graph's own pool does so, whose free memory the graph's kernels write.
    """
    cuda = cupy.cuda
    try:
        return cuda.MemoryPointer(cuda.Memory(size), 0)
    except cuda.runtime.CUDARuntimeError as error:
        if error.status != _NO_MEMORY:
            raise
    cuda_memory.empty(cupy)
    return cuda.MemoryPointer(cuda.Memory(size), 0)


class _Blas:
    """cuBLAS by its C functions, as far as they are needed on a stream that is captured."""

    def __init__(self, library: Any) -> None:
        self.library = library
        integer, wide, pointer = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
        matrix, batched = (pointer, integer, integer), (pointer, integer, integer, wide)
        start = (pointer, *[integer] * 5, pointer)
        library.cublasGemmEx.argtypes = (
            *start, *matrix, *matrix, pointer, *matrix, integer, integer,
        )  # fmt: skip
        library.cublasGemmStridedBatchedEx.argtypes = (
            *start, *batched, *batched, pointer, *batched, integer, integer, integer,
        )  # fmt: skip
        library.cublasSetStream_v2.argtypes = (pointer, pointer)
        library.cublasSetWorkspace_v2.argtypes = (pointer, pointer, ctypes.c_size_t)
        library.cublasSetMathMode.argtypes = (pointer, integer)
        self.functions = {
            "gemmEx": library.cublasGemmEx,
            "gemmStridedBatchedEx": library.cublasGemmStridedBatchedEx,
        }
        self._handles: dict[int, int] = {}

    def handle(self, index: int) -> int:
        """The current GPU's handle for captures, of which there is one at a time."""
        handle = self._handles.get(index)
        if handle is None:
            made = ctypes.c_void_p()
            _must("cublasCreate", self.library.cublasCreate_v2(ctypes.byref(made)))
            assert made.value is not None
            handle = self._handles[index] = made.value
        return handle

    def multiply(
        self, handle: int, stream: int, workspace: Any, name: str, arguments: Any, mode: int
    ) -> None:
        """A product on a stream, with a workspace that stays the graph's."""
        _must("cublasSetStream", self.library.cublasSetStream_v2(handle, stream))
        pointer, size = workspace.data.ptr, workspace.nbytes
        _must("cublasSetWorkspace", self.library.cublasSetWorkspace_v2(handle, pointer, size))
        _must("cublasSetMathMode", self.library.cublasSetMathMode(handle, mode))
        _must(f"cublas{name}", self.functions[name](handle, *arguments))


def _must(name: str, status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error: {name} failed with status {status} during a graph capture")


@cache
def _blas() -> _Blas:
    """The library that CuPy's own binding is linked with."""
    return _Blas(ctypes.CDLL(installing.binding("cublas").__file__))
