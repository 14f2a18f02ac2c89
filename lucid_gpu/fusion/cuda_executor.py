"""The CuPy executor: a plan's CUDA C as a `cupy.RawKernel`, launched with as little as is safe.

CuPy keeps compiled kernels on disk; here they are kept in memory by source and device. A launch
packs pointers and numbers into one block and hands it to cuLaunchKernel: `RawKernel.__call__`
would describe every array by shape and strides first.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import room
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_source import Kernel, complete
from lucid_gpu.fusion.launching import CudaExecutable, Launch
from lucid_gpu.fusion.plan import Plan

OPTIONS = ("-std=c++17",)

_raw: dict[tuple[str, str], Any] = {}  # (name, source) -> RawKernel
_lock = threading.Lock()


class _Thread(threading.local):
    """The devices whose context the calling thread has: cuLaunchKernel fails without."""

    def __init__(self) -> None:
        self.ready: set[int] = set()


_thread = _Thread()


class Executable(CudaExecutable):
    """A plan ready to run on CuPy arrays, on the current stream of the plan's device."""

    def __init__(self, plan: Plan) -> None:
        self.device = plan.device
        self.room = room(plan.device)
        self.cuda = self.room.xp.cuda
        self.index = self.room.current_index() if plan.device.index is None else plan.device.index
        self.processors = multiprocessors(self.index)
        self.launch_kernel = self.cuda.driver.launchKernel
        super().__init__(plan)

    def __call__(self, arrays: Any, scalars: Any) -> list[Any]:
        if self.index in _thread.ready and self.cuda.runtime.getDevice() == self.index:
            return super().__call__(arrays, scalars)
        with self.at_home():
            return super().__call__(arrays, scalars)

    @contextlib.contextmanager
    def at_home(self) -> Iterator[None]:
        """Make the plan's device current, with a context on this thread."""
        with self.cuda.Device(self.index):
            if self.index not in _thread.ready:
                self.cuda.runtime.free(0)  # what a thread is first given the context by
                _thread.ready.add(self.index)
            yield

    def empty(self, shape: tuple[int, ...], d: dtype) -> Any:
        return self.room.empty(shape, d, self.device)

    def address(self, array: Any) -> int:
        address: int = array.data.ptr
        return address

    def compile(self, kernel: Kernel) -> Any:
        key = (kernel.name, kernel.source)
        with _lock:
            raw = _raw.get(key)
            if raw is None:
                text = complete(kernel.source)
                raw = _raw[key] = self.room.xp.RawKernel(text, kernel.name, options=OPTIONS)
            return raw.kernel  # compiled for the current device, or found on disk

    def start(self, launch: Launch, grid: tuple[int, int], table: int) -> None:
        (grid_x, grid_y), (block_x, block_y) = grid, launch.kernel.block
        stream = self.cuda.get_current_stream().ptr
        self.launch_kernel(
            launch.handle.ptr, grid_x, grid_y, 1, block_x, block_y, 1, 0, stream, table, 0
        )


@functools.cache
def multiprocessors(index: int) -> int:
    """How many multiprocessors a GPU has."""
    count: int = room(device("cuda", index)).xp.cuda.Device(index).attributes["MultiProcessorCount"]
    return count
