"""A plan's CUDA C, unchanged, compiled as C++ and run on the host (``LUCID_EXECUTOR=host-cuda``).

It puts the code generator under test where there is no GPU: a loop over blocks and threads, and
fibers for the threads of a block that cooperate (`kernels/host`). It is not meant to be fast.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from lucid_gpu.devices.pool import pool
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_source import Kernel, complete
from lucid_gpu.fusion.launching import CudaExecutable, Launch
from lucid_gpu.kernel_sources import kernel_path

# Rounding as the source says: no fused multiply-add, integers that wrap. Stacks of fibers are
# switched by longjmp, which _FORTIFY_SOURCE takes for an overrun.
FLAGS = (
    "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off",
    "-fno-strict-aliasing", "-fno-math-errno", "-U_FORTIFY_SOURCE",
)  # fmt: skip
FAILURES = {
    1: "out of memory for the threads' stacks",
    2: "threads of a block parted at a barrier or a shuffle",
}

_compiled: dict[str, Any] = {}
_lock = threading.RLock()  # a kernel keeps its block's place in static variables


class Executable(CudaExecutable):
    """A plan ready to run on NumPy arrays through its CUDA C."""

    def empty(self, shape: tuple[int, ...], d: dtype) -> Any:
        return pool.empty(shape, d.numpy)

    def address(self, array: Any) -> int:
        address: int = array.__array_interface__["data"][0]
        return address

    def compile(self, kernel: Kernel) -> Any:
        with _lock:
            found = _compiled.get(kernel.source)
            if found is None:
                library = ctypes.CDLL(str(build(kernel)))
                found = library.lucid_host_launch
                found.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 4
                _compiled[kernel.source] = found
        return found

    def start(self, launch: Launch, grid: tuple[int, int], table: int) -> None:
        kernel = launch.kernel
        with _lock:
            failure = launch.handle(table, *grid, *kernel.block)
        if failure:
            raise RuntimeError(f"{kernel.name}: {FAILURES[failure]}\n{kernel.source}")


def build(kernel: Kernel) -> Path:
    """The shared library of a kernel, compiled unless the cache folder has it.

    Raises
    ------
    RuntimeError
        Without a C++ compiler, or where it refuses the source.
    """
    command = [_compiler(), *FLAGS]
    if kernel.cooperative:
        command.append("-DLUCID_HOST_COOPERATIVE")
    text = f"{complete(kernel.source)}\nLUCID_HOST_ENTRY({kernel.name})\n"
    header = kernel_path("host/cuda_on_host.h")
    known = "\0".join([*command, _headers(), text])
    target = _folder() / f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.so"
    if not target.exists():
        _compile([*command, "-include", str(header)], text, kernel, target)
    return target


def _compile(command: list[str], text: str, kernel: Kernel, target: Path) -> None:
    """Compile beside the target, then rename: other processes never see half a library."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "kernel.so"
        ran = subprocess.run(
            [*command, "-x", "c++", "-", "-o", str(made)],
            input=text, capture_output=True, text=True,
        )  # fmt: skip
        if ran.returncode:
            raise RuntimeError(
                f"{command[0]} refused the kernel {kernel.name}:\n{ran.stderr}\n{kernel.source}"
            )
        os.replace(made, target)


@functools.cache
def _compiler() -> str:
    wanted = os.environ.get("CXX") or "g++"
    found = shutil.which(wanted)
    if found is None:
        raise RuntimeError(
            f"LUCID_EXECUTOR=host-cuda needs a C++ compiler and found no {wanted!r}; on Debian and "
            "Ubuntu: apt-get install g++"
        )
    return found


@functools.cache
def _headers() -> str:
    return "".join(kernel_path(f"host/{n}").read_text() for n in ("cuda_on_host.h", "fibers.h"))


@functools.cache
def _folder() -> Path:
    """Where compiled kernels are kept, or a temporary folder where that cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(os.environ.get("LUCID_CACHE_DIR") or os.path.join(base, "lucid_gpu")) / "host"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lucid_gpu-"))
