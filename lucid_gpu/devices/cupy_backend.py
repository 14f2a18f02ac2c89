"""The GPU's backend: CuPy, imported when a cuda device is first asked for."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import operator
import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import cublaslt, cuda_memory, cudnn, device_errors, gemm, installing
from lucid_gpu.devices.cuda_errors import explained
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.devices.port import Calls
from lucid_gpu.dtypes import dtype, from_numpy_dtype

INSTALL = "python -m pip install 'cupy-cuda12x[ctk]>=14'"
DRIVER = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
_forked = False


def problem() -> str | None:
    """Why there is no GPU to compute on, with the mend; None where there is one.

    Where CuPy or the driver is missing it answers without importing CuPy.
    """
    if _forked:
        return (
            "this process was forked from one that uses the GPU, and CUDA does not survive that; "
            'start it otherwise, as with DataLoader(multiprocessing_context="spawn"), or keep to '
            "the CPU in it"
        )
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; on a machine with an NVIDIA GPU: {INSTALL}"
    if not _has_driver():
        return (
            "there is no NVIDIA driver (libcuda.so.1 cannot be loaded); `nvidia-smi` should print "
            "a table with your GPU: install the driver, or start the container with `--gpus all`"
        )
    try:
        cupy = import_cupy()
        if (older := too_old(cupy.__version__)) is not None:
            return older
        count = cupy.cuda.runtime.getDeviceCount()
    except (ImportError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        return (
            f"CuPy cannot use the GPU ({first}); `nvidia-smi` should print a table with your GPU "
            "and a CUDA version of 12 or newer, and one cupy package, not two, should be "
            f"installed: {INSTALL}"
        )
    if count == 0:
        return (
            "the driver lists no GPU; `nvidia-smi -L` should print one line a GPU, and "
            "CUDA_VISIBLE_DEVICES should not hide it"
        )
    return None


def too_old(version: str) -> str | None:
    """What to say of a version of CuPy before 14, with the command that replaces it."""
    if int(version.partition(".")[0]) >= 14:
        return None
    return (
        f"CuPy {version} is installed, and lucid_gpu needs 14 or newer, which has bfloat16; "
        f"uninstall it, and install: {INSTALL}"
    )


def runtime_version() -> str | None:
    """The CUDA runtime that CuPy uses, such as ``"12.9"``; None where there is no GPU."""
    if problem() is not None:
        return None
    major, rest = divmod(import_cupy().cuda.runtime.runtimeGetVersion(), 1000)
    return f"{major}.{rest // 10}"


@functools.cache
def _has_driver() -> bool:
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def cache_folder() -> str:
    """Where CuPy keeps compiled kernels: what it is told, or its own choice."""
    own = os.path.join(os.path.expanduser("~"), ".cupy", "kernel_cache")
    return os.environ.get("CUPY_CACHE_DIR", own)


@functools.cache
def import_cupy() -> Any:
    """CuPy, its cache of compiled kernels in a folder that can be written.

    CuPy makes that folder while it is imported and fails where HOME cannot be written.
    """
    usual = cache_folder()
    if "CUPY_CACHE_DIR" not in os.environ:
        try:
            os.makedirs(usual, exist_ok=True)
            with tempfile.TemporaryFile(dir=usual):
                pass
        except OSError:
            user = os.getuid() if hasattr(os, "getuid") else "user"
            folder = os.path.join(tempfile.gettempdir(), f"lucid_gpu-cupy-{user}")
            os.environ["CUPY_CACHE_DIR"] = folder
    import cupy

    return cupy


@functools.cache
def import_nccl() -> Any:
    """``cupy.cuda.nccl``; None where NCCL's library is missing."""
    import_cupy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy says by a warning that the library is missing
        from cupy.cuda import nccl
    return nccl if nccl.available else None


def _lose() -> None:
    """In a forked child: CUDA is gone, and `problem` says so."""
    global _forked
    _forked = True


class CupyBackend(Calls):
    """CuPy arrays, in the memory pool CuPy keeps for each device and stream.

    Raises
    ------
    RuntimeError
        If CuPy, the driver or a GPU is missing; the message says which and what mends it.
    """

    type = "cuda"
    multiplies_16_bits = True
    joins_rows = True

    def __init__(self) -> None:
        missing = problem()
        if missing is not None:
            raise RuntimeError(f"no cuda device can be used: {missing}")
        self.xp: Any = import_cupy()
        cuda_memory.install(self.xp)
        self.new = self.xp.ndarray
        self.devices: dict[int, device] = {}
        runtime = self.xp.cuda.runtime
        self.get_device = runtime.getDevice
        # Of one GPU nobody has to ask whether it is the current one.
        self.only = 0 if runtime.getDeviceCount() == 1 else None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_lose)

    def current_index(self) -> int:
        index: int = self.get_device()
        return index

    def is_current(self, index: int) -> bool:
        return index == self.only or index == self.get_device()

    def require_index(self, index: int) -> None:
        count = self.xp.cuda.runtime.getDeviceCount()
        if index >= count:
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: there is no device {index}, this machine has "
                f"{count}"
            )

    def device_of(self, array: Any) -> device:
        number = array.data.device_id  # `array.device` makes an object
        if number not in self.devices:
            self.devices[number] = device("cuda", number)
        return self.devices[number]

    address = staticmethod(operator.attrgetter("data.ptr"))

    def is_borrowed(self, array: Any) -> bool:
        return type(array.data.mem).__name__ in ("UnownedMemory", "DLPackMemory")

    def empty(self, shape: Sequence[int], d: dtype, where: device) -> Any:
        index = where.index
        if index == self.only or index == self.get_device():
            return self.xp.ndarray(shape, d.numpy)
        with on_gpu(self.xp.cuda, index):
            return self.xp.ndarray(shape, d.numpy)

    def full(self, shape: Sequence[int], value: Any, d: dtype, where: device) -> Any:
        with on_gpu(self.xp.cuda, where.index):
            array = self.xp.empty(shape, d.numpy)
            array.fill(value)
        return array

    def arange(self, count: int, d: dtype, where: device) -> Any:
        with on_gpu(self.xp.cuda, where.index):
            return self.xp.arange(count, dtype=d.numpy)

    def asarray(self, data: Any, d: dtype, where: device) -> Any:
        with on_gpu(self.xp.cuda, where.index):
            if isinstance(data, self.xp.ndarray):
                return self.xp.array(data, dtype=d.numpy, order="C")
            return self.xp.asarray(np.asarray(data).astype(d.numpy, order="C"))

    def to_numpy(self, array: Any) -> Any:
        try:
            host = self.xp.asnumpy(array)
        except self.xp.cuda.runtime.CUDARuntimeError as error:  # most likely some kernel's
            raise explained(error) from error
        device_errors.check()
        return host

    def from_numpy(self, array: Any, where: device) -> Any:
        with on_gpu(self.xp.cuda, where.index):
            return self.xp.asarray(np.ascontiguousarray(array).reshape(array.shape))

    def item(self, array: Any) -> Any:
        return self.to_numpy(array).item()

    def matmul(self, a: Any, b: Any, d: dtype, out: Any = None) -> Any:
        index = a.data.device_id
        if index != self.only and index != self.get_device():
            with on_gpu(self.xp.cuda, index):
                return self.matmul(a, b, d, out)
        if d.category < 2:  # cuBLAS has no integers
            return self.xp.matmul(a, b, out=out)  # by name: it is not one of CuPy's ufuncs
        if out is None:
            left, right = a.shape, b.shape
            shape = (*left[:-1], right[1]) if b.ndim == 2 else gemm.shape_of(left, right)
            out = self.xp.ndarray(shape, d.numpy)
        gemm.multiply(self.xp, a, b, out, d.name)
        return out

    def matmul_of_rows(self, a: Any, b: Any, d: dtype) -> Any:
        index = a.data.device_id
        if index != self.only and index != self.get_device():
            with on_gpu(self.xp.cuda, index):
                return self.matmul_of_rows(a, b, d)
        out = self.xp.ndarray((a.shape[-1], b.shape[-1]), d.numpy)
        gemm.multiply_rows(self.xp, a, b, out, d.name)
        return out

    def matmul_with_vector(self, a: Any, b: Any, d: dtype, vector: Any, sums: bool) -> Any:
        if not cublaslt.preferred:
            return None
        with on_gpu(self.xp.cuda, a.data.device_id):
            out = self.xp.ndarray((a.shape[0], b.shape[1]), d.numpy)
            epilogue = cublaslt.SUMS if sums else cublaslt.BIAS
            took = cublaslt.multiply(self.xp, a, b, out, vector, d.name, epilogue)
        return out if took else None

    def matmul_in_background(self, a: Any, b: Any, d: dtype) -> Any:
        return None  # whatever is launched runs beside the host

    def matmul_beside(self, a: Any, b: Any, d: dtype) -> Any:
        return self.matmul(a, b, d)

    def convolve(self, op: str, a: Any, b: Any, shape: Sequence[int], window: Any) -> Any:
        kind = from_numpy_dtype(a.dtype).name  # NumPy puts the name together each time
        if not cudnn.in_use(kind):
            return None
        with on_gpu(self.xp.cuda, a.device.id):
            return cudnn.convolve(self.xp, op, kind, a, b, shape, window)

    def library(self, module: str, name: str, where: device, *arrays: Any, **options: Any) -> Any:
        import cupyx

        function = getattr(getattr(self.xp, module), name)
        with (
            on_gpu(self.xp.cuda, where.index),
            installing.cuda_libraries(),
            cupyx.errstate(linalg="raise"),
        ):  # else failures are not looked at
            return function(*arrays, **options)

    def argsort(self, array: Any, dim: int) -> Any:
        if array.dtype.name == "bfloat16":  # CuPy's Thrust sorts none
            array = array.astype(np.float32)
        return self.xp.argsort(array, axis=dim, kind="stable")

    def synchronize(self) -> None:
        self.xp.cuda.runtime.deviceSynchronize()
        device_errors.check()

    def host_record(self, count: int) -> tuple[Any, int]:
        """Integers on the host that kernels can write: an array, and its address for them."""
        memory = self.xp.cuda.alloc_pinned_memory(8 * count)  # mapped into every device
        return np.frombuffer(memory, np.int64, count), memory.ptr
