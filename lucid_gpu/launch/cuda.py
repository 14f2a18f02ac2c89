"""CUDA C on a GPU, launched with as little as is safe.

`launch.nvrtc` keeps compiled kernels on disk, `Launcher.kernels` keeps them in memory. A launch
packs pointers and numbers into one block and hands it to cuLaunchKernel: `RawKernel.__call__`
would describe every array by shape and strides first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from functools import cache
from types import FunctionType
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import backend, block_counters
from lucid_gpu.devices.cuda_errors import explained
from lucid_gpu.devices.cupy_backend import DRIVER
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.launch import nvrtc
from lucid_gpu.launch.arguments import Arguments, Packing
from lucid_gpu.launch.compiling import Text
from lucid_gpu.launch.failures import failed
from lucid_gpu.launch.launcher import Extent, Launcher, Start
from lucid_gpu.launch.source import complete
from lucid_gpu.tape.native import gpu

BLOCKING = os.environ.get("CUDA_LAUNCH_BLOCKING", "") not in ("", "0")  # an error names its kernel
SHARED = 48 * 1024  # bytes of shared memory a block may use without having asked for more


class _Thread(threading.local):
    """The devices whose context the calling thread has: cuLaunchKernel fails without."""

    def __init__(self) -> None:
        self.ready: set[int] = set()


_thread = _Thread()


class Function:
    """A kernel compiled for one device."""

    def __init__(self, raw: Any, name: str) -> None:
        self.raw, self.name = raw, name
        self.kernel = raw.kernel  # compiled for the current device, or found on disk
        self.ptr = self.kernel.ptr
        self.shared = SHARED - raw.shared_size_bytes  # dynamic, beside what is static

    def allow(self, shared: int) -> None:
        """Let a launch use more dynamic shared memory."""
        self.raw.max_dynamic_shared_size_bytes = shared
        self.shared = shared


class CudaLauncher(Launcher):
    """Kernels on the current stream of one GPU."""

    mode = "background"
    index: int

    def __init__(self, where: device) -> None:
        assert where.index is not None
        self.device = where
        self.index = where.index
        there: Any = backend(where)
        self.backend = there
        self.address, self.empty, self.xp = there.address, there.new, there.xp
        self.kind = self.xp.ndarray
        self.cuda = self.xp.cuda
        self.stream = self.cuda.get_current_stream
        self.launch_kernel = self.cuda.driver.launchKernel
        self.failures = self.cuda.driver.CUDADriverError, self.cuda.runtime.CUDARuntimeError
        self.only, self.get_device = self.index == there.only, there.get_device
        figures = self.cuda.Device(self.index).attributes
        self.processors, self.cache = figures["MultiProcessorCount"], figures["L2CacheSize"]
        self.kernels, self.met = {}, {}

    def counters(self) -> Any:
        return block_counters.counters(self.xp, self.index, self.stream(self.index))

    def is_home(self) -> bool:
        return self.index in _thread.ready and (self.only or self.index == self.get_device())

    @contextlib.contextmanager
    def at_home(self) -> Iterator[None]:
        with on_gpu(self.cuda, self.index):
            if self.index not in _thread.ready:
                self.cuda.runtime.free(0)  # what a thread is first given the context by
                _thread.ready.add(self.index)
            yield

    def build(self, text: Text) -> Function:
        source = complete(text.source)
        options = nvrtc.OPTIONS if text.contract else nvrtc.GENERATED
        try:
            raw = nvrtc.load(self.xp, self.index, source, text.name, options)
            return Function(raw, text.name)
        except self.failures as error:  # most likely of a kernel before
            raise explained(error, f"the loading of {text.name}") from error

    def bound(
        self, function: Function, packing: Packing, grid: Extent, block: Extent, shared: int = 0
    ) -> Start | None:
        launch = self.cuda.driver.launchKernel
        if BLOCKING or self.launch_kernel is not launch or isinstance(launch, FunctionType):
            return None  # each launch is looked at, or something stands in for the driver
        address, letters = _launch_address(), packing.letters
        if gpu is None or address is None or letters is None or shared > function.shared:
            return None
        try:
            started: Start = gpu.Start(
                address, function.ptr, (*grid, *block), shared, self.stream, self.index, letters,
                packing.sizes, packing.tail,
            )  # fmt: skip
        except ValueError:
            return None
        return started

    def launch(
        self,
        function: Function,
        arguments: Arguments,
        grid: Extent,
        block: Extent,
        shared: int = 0,
    ) -> None:
        stream = self.stream(self.index).ptr
        try:
            if shared > function.shared:
                function.allow(shared)
            self.launch_kernel(function.ptr, *grid, *block, shared, stream, arguments.table, 0)
            if BLOCKING:
                self.cuda.runtime.streamSynchronize(stream)
        except self.failures as error:
            raise failed(error, function.name, grid, block, shared) from error
        arguments.spare.append(arguments)


@cache
def _launch_address() -> int | None:
    """Where cuLaunchKernel is; None where the driver is not found by name."""
    try:
        driver = ctypes.CDLL(DRIVER)
        return ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
