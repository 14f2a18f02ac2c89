"""RawKernel and RawModule: the very source, compiled as C++ by `kernels/host` and run here."""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from cupy import _core, _counts
from cupy.cuda import memory, runtime, stream
from cupy.cuda.compiler import CompileException
from lucid_gpu.launch import host
from lucid_gpu.launch.source import is_cooperative

functions: dict[int, Function] = {}  # by address
compiled = [0, 0.0]  # how many sources this process compiled or loaded, and in how many seconds
_lock = threading.RLock()


class Function:
    """A compiled kernel."""

    def __init__(self, name: str, library: Any, cooperative: bool) -> None:
        self.name, self._cooperative = name, cooperative
        self._run = library.lucid_host_launch
        self._run.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 9
        sizes = (ctypes.c_int * 512)()
        self._sizes = sizes[: library.lucid_host_sizes(sizes)]
        self.ptr = ctypes.cast(self._run, ctypes.c_void_p).value or 0
        self.max_threads_per_block = 1024
        self.max_dynamic_shared_size_bytes = 48 << 10
        functions[self.ptr] = self

    def _launch(self, grid: Any, block: Any, shared: int, queue: int, table: int) -> None:
        """Read the arguments now, as cuLaunchKernel does, and run in the stream's order."""
        _counts.note("launch", self.name)
        if queue in (0, runtime.streamLegacy):
            stream._submit(lambda: self._now(grid, block, shared, table), 0)
            return
        places = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
        kept = [ctypes.string_at(places[i], size) for i, size in enumerate(self._sizes)]

        def later() -> None:
            buffers = [ctypes.create_string_buffer(b, len(b)) for b in kept]
            own = (ctypes.c_void_p * len(buffers))(*[ctypes.addressof(b) for b in buffers])
            self._now(grid, block, shared, ctypes.addressof(own))

        stream._submit(later, queue)

    def _now(self, grid: Any, block: Any, shared: int, table: int) -> None:
        with host._lock:
            memory._recent.append(self.name)
            del memory._recent[:-16]
            stacks = host.stacks(block[0] * block[1] * block[2]) if self._cooperative else None
            flushed = host.arithmetic() == "flushed"
            failure = self._run(table, stacks, *grid, *block, shared, host.order(), flushed)
        if failure:
            raise RuntimeError(f"{self.name}: {host.FAILURES[failure]}")

    def __call__(
        self,
        grid: Any,
        block: Any,
        args: Any,
        shared_mem: Any = 0,
        stream: Any = None,
        enable_cooperative_groups: Any = False,
    ) -> None:
        from cupy.cuda import driver
        from cupy.cuda import stream as streams

        packed = [_packed(a) for a in args]
        if len(packed) != len(self._sizes):
            raise ValueError(f"{self.name} takes {len(self._sizes)} arguments, got {len(packed)}")
        buffers = [ctypes.create_string_buffer(b, max(len(b), 16)) for b in packed]
        table = (ctypes.c_void_p * len(buffers))(*[ctypes.addressof(b) for b in buffers])
        runtime._make_context()
        driver.launchKernel(
            self.ptr, *_three(grid), *_three(block), shared_mem,
            (stream or streams.get_current_stream()).ptr, ctypes.addressof(table), 0,
        )  # fmt: skip


def _three(sizes: Any) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _packed(value: Any) -> bytes:
    """An argument's bytes as CuPy packs it: Python numbers take 8 bytes."""
    if _core.is_array(value):
        return numpy.uint64(value.data.ptr).tobytes()
    if isinstance(value, memory.MemoryPointer):
        return numpy.uint64(value.ptr).tobytes()
    if value is None:
        return bytes(8)
    if isinstance(value, (bool, int, float, complex)):
        return numpy.asarray(value).tobytes()
    if isinstance(value, (numpy.generic, numpy.ndarray)) and numpy.size(value) == 1:
        return value.tobytes()
    raise TypeError(f"Unsupported type {type(value)}")


class RawKernel:
    """A kernel compiled when it is first asked for, once a device."""

    def __init__(
        self,
        code: str,
        name: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        *,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:
        self._code, self.name, self.options, self.backend = code, name, tuple(options), backend
        self.enable_cooperative_groups = enable_cooperative_groups
        self.file_path: str | None = None
        self._kernels: dict[int, Function] = {}

    @property
    def code(self) -> str:
        return self._code

    @property
    def kernel(self) -> Function:
        device = runtime.getDevice()
        runtime._make_context()
        with _lock:
            found = self._kernels.get(device)
            if found is None:
                code = self._code
                if self.file_path is not None:
                    code = Path(self.file_path).read_text("utf-8")
                found = self._kernels[device] = load(code, self.name)
            return found

    def compile(self, log_stream: Any = None) -> None:
        self.kernel

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: Any = 0) -> None:
        self.kernel(grid, block, args, shared_mem)

    @property
    def max_threads_per_block(self) -> int:
        return self.kernel.max_threads_per_block

    @property
    def shared_size_bytes(self) -> int:
        """Static shared memory, of which C++ keeps no count."""
        return 0

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self.kernel.max_dynamic_shared_size_bytes

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        from cupy.cuda import driver

        if size > 227 << 10:
            raise driver.CUDADriverError(1)
        self.kernel.max_dynamic_shared_size_bytes = size


class RawModule:
    """Several kernels of one source."""

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Any = None,
        jitify: bool = False,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        self.code, self.file_path, self.options = code, path, options

    def get_function(self, name: str) -> RawKernel:
        kernel = RawKernel(self.code or "", name, self.options)
        kernel.file_path = self.file_path  # what the stand-in's NVRTC made
        kernel.kernel  # loaded at once
        return kernel


def load(code: str, name: str) -> Function:
    """Compile a kernel, or find it in the cache folder of the host's kernels."""
    start = time.perf_counter()
    cooperative = is_cooperative(code)
    try:
        library = host.build(name, code, cooperative)
    except RuntimeError as error:
        raise CompileException(str(error), code, name, (), "g++") from None
    compiled[0] += 1
    compiled[1] += time.perf_counter() - start
    return Function(name, ctypes.CDLL(str(library)), cooperative)


def memoize(for_each_device: bool = False) -> Callable[[Any], Any]:
    """Keep a function's results, by its arguments and the device."""

    def decorator(function: Any) -> Any:
        kept = functools.cache(lambda device, args, kwargs: function(*args, **dict(kwargs)))

        @functools.wraps(function)
        def memoized(*args: Any, **kwargs: Any) -> Any:
            device = runtime.getDevice() if for_each_device else None
            return kept(device, args, tuple(sorted(kwargs.items())))

        return memoized

    return decorator
