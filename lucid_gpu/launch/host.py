"""CUDA C, unchanged, compiled as C++ and run on the host (``LUCID_EXECUTOR=host-cuda``).

It puts kernels under test where there is no GPU: a loop over blocks and threads, and fibers for the
threads of a block that cooperate (`kernels/host`). It is not meant to be fast.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from lucid_gpu.device import CPU
from lucid_gpu.devices import backend
from lucid_gpu.devices.block_counters import MOST
from lucid_gpu.launch.arguments import Arguments
from lucid_gpu.launch.compile_errors import CompileError
from lucid_gpu.launch.compiling import Text
from lucid_gpu.launch.kernel_sources import kernel_path
from lucid_gpu.launch.launcher import Extent, Launcher
from lucid_gpu.launch.source import complete

# Rounding as the source says: no fused multiply-add (but see `arithmetic`), integers that wrap.
# Stacks of fibers are switched by longjmp, which _FORTIFY_SOURCE takes for an overrun. No library
# is linked, which saves a third of a compilation: what a kernel calls, Python has loaded. Names are
# hidden, or the loader gives libraries whose templates have variables of the same name one copy,
# of the first one's size.
FLAGS = (
    "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-nostdlib", "-fwrapv", "-ffp-contract=off",
    "-fno-strict-aliasing", "-fno-math-errno", "-fno-threadsafe-statics", "-U_FORTIFY_SOURCE",
    "-fsanitize=alignment", "-fvisibility=hidden",
)  # fmt: skip
# GCC contracts at -O1 only with these three; -mfma is for processors of Intel's kind alone.
CONTRACTED = ("-ffp-contract=fast", "-fexpensive-optimizations", "-DLUCID_HOST_CONTRACTED")
STACK = 64 * 1024  # of one thread of a block that cooperates
SHARED = 227 * 1024  # the most dynamic shared memory a block has on any GPU
FAILURES = {
    1: "threads of a block parted at a barrier or a shuffle",
    2: "an access at an address that is no multiple of what it moves",
    3: "LUCID_HOST_ARITHMETIC=flushed is for x86 processors only",
    4: "an assertion of the kernel failed; its line and thread are printed",
    5: "grid.sync() and coalesced_threads() are for GPUs only: on the host blocks run one after "
    "another, and threads one at a time",
}

# C++ has no array of unknown size inside a function: it becomes a pointer.
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w:<>\s]+?)\s+(\w+)\s*\[\s*\]\s*;"
)

_kernels: dict[Text, Future[Any]] = {}
_met: dict[Text, int] = {}
_lock = threading.RLock()  # a kernel keeps its block's place in static variables


class Function:
    """A kernel compiled as a shared library, and where it may be contracted, as another one."""

    def __init__(self, text: Text) -> None:
        self.name, self.source, self.cooperative, self.contract = text
        self._built: dict[bool, Any] = {}
        self.built()

    def built(self) -> Any:
        """The library's function, with the arithmetic that is asked for now."""
        contracted = self.contract and arithmetic() == "contracted"
        function = self._built.get(contracted)
        if function is None:
            more = _contracting(platform.machine()) if contracted else ()
            library = build(self.name, self.source, self.cooperative, more)
            function = self._built[contracted] = ctypes.CDLL(str(library)).lucid_host_launch
            function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 9
        return function


class HostLauncher(Launcher):
    """Kernels on NumPy arrays, one at a time."""

    device = CPU
    only, index = True, None
    processors = 1
    cache = 50 << 20  # as if it were a GPU of 2022
    mode = "wait"

    def __init__(self) -> None:
        self.backend = backend(CPU)
        self.kind = self.backend.xp.ndarray
        self.address = self.backend.address
        self.empty = self.backend.new
        self.kernels, self.met = _kernels, _met

    def counters(self) -> Any:
        return self.backend.xp.zeros(MOST, "u4")  # never those of a kernel that failed

    def is_home(self) -> bool:
        return True

    def at_home(self) -> AbstractContextManager[None]:
        return nullcontext()

    def build(self, text: Text) -> Function:
        return Function(text)

    def launch(
        self,
        function: Function,
        arguments: Arguments,
        grid: Extent,
        block: Extent,
        shared: int = 0,
    ) -> None:
        self.start(function, grid, block, shared, arguments.table)
        arguments.spare.append(arguments)

    def start(
        self, function: Function, grid: Extent, block: Extent, shared: int, table: int
    ) -> None:
        """Run a compiled kernel on the arguments a table points to."""
        if shared > SHARED:
            raise RuntimeError(
                f"{function.name}: {shared} bytes of dynamic shared memory for a block, of "
                f"{SHARED} that a GPU has at most"
            )
        with _lock:
            memory = stacks(block[0] * block[1] * block[2]) if function.cooperative else None
            flushed = arithmetic() == "flushed"
            failure = function.built()(table, memory, *grid, *block, shared, order(), flushed)
        if failure:
            raise RuntimeError(f"{function.name}: {FAILURES[failure]}\n{function.source}")


def order() -> int:
    """In which order blocks, warps and lanes run, as ``LUCID_HOST_ORDER`` says it for tests.

    Raises
    ------
    RuntimeError
        If it is neither ``reversed`` nor a number, the seed of a mixture.
    """
    text = os.environ.get("LUCID_HOST_ORDER", "")
    if not text or text == "reversed":
        return int(bool(text))
    if not text.isdecimal():
        raise RuntimeError(f"LUCID_HOST_ORDER is 'reversed' or a number, not {text!r}")
    return 2 + int(text) % (1 << 31)


def arithmetic() -> str:
    """How kernels round, as ``LUCID_HOST_ARITHMETIC`` says it for tests.

    ``contracted``: a product and a sum are one fused multiply-add wherever NVRTC may make them one,
    which is everywhere but in generated kernels (`Text.contract`). ``flushed``: denormal numbers
    are zero, read and written, as with ``-ftz=true``, though of doubles too. Else neither.

    Raises
    ------
    RuntimeError
        For any other word.
    """
    text = os.environ.get("LUCID_HOST_ARITHMETIC", "")
    if text not in ("", "contracted", "flushed"):
        raise RuntimeError(f"LUCID_HOST_ARITHMETIC is 'contracted' or 'flushed', not {text!r}")
    return text


@functools.cache
def _contracting(machine: str, cpuinfo: str = "/proc/cpuinfo") -> tuple[str, ...]:
    """Flags of a compiler that shall contract, for this processor."""
    if machine not in ("x86_64", "AMD64"):
        return CONTRACTED
    if not re.search(r"^flags\b.*\bfma\b", Path(cpuinfo).read_text(), re.MULTILINE):
        raise RuntimeError(
            "LUCID_HOST_ARITHMETIC=contracted needs a processor that has fused multiply-add: the "
            f"flags in {cpuinfo} do not name fma"
        )
    return (*CONTRACTED, "-mfma")


_stacks: Any = None


def stacks(threads: int) -> int:
    """The address of memory for so many threads' stacks; pages nobody touches cost nothing."""
    global _stacks
    if _stacks is None or len(_stacks) < threads * STACK:
        memory = mmap.mmap(-1, threads * STACK)
        _stacks = (ctypes.c_char * len(memory)).from_buffer(memory)
    return ctypes.addressof(_stacks)


def build(name: str, source: str, cooperative: bool, more: Sequence[str] = ()) -> Path:
    """The shared library of a kernel, compiled with ``more`` flags unless the cache has it.

    Raises
    ------
    RuntimeError
        Without a C++ compiler.
    CompileError
        If it refuses the source.
    """
    header = kernel_path("host/cuda_on_host.h")
    command = [_compiler(), *FLAGS, f"-DLUCID_FIBER_STACK={STACK}", f"-DLUCID_SHARED={SHARED}"]
    command += [
        f"-I{header.parent}",
        *more,
    ]  # where CUDA's own headers are, as far as there are any
    if cooperative:
        command.append("-DLUCID_HOST_COOPERATIVE")
    text = _DYNAMIC.sub(r"\1* const \2 = (\1*)lucid_host_dynamic;", complete(source))
    text = f"{text}\nLUCID_HOST_ENTRY({name})\n"
    known = "\0".join([*command, _headers(), text])
    target = _folder() / f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.so"
    if not target.exists():
        _compile([*command, "-include", str(header)], text, name, target)
    return target


def _compile(command: list[str], text: str, name: str, target: Path) -> None:
    """Compile beside the target, then rename: other processes never see half a library."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "kernel.so"
        ran = subprocess.run(
            [*command, "-x", "c++", "-", "-o", str(made)],
            input=text, capture_output=True, text=True,
        )  # fmt: skip
        if ran.returncode:
            raise CompileError(name, command[0], ran.stderr, text)
        os.replace(made, target)


@functools.cache
def _compiler() -> str:
    wanted = os.environ.get("CXX") or "g++"
    path = shutil.which(wanted)
    if path is None:
        raise RuntimeError(
            f"LUCID_EXECUTOR=host-cuda needs a C++ compiler and found no {wanted!r}; on Debian and "
            "Ubuntu: apt-get install g++"
        )
    return path


@functools.cache
def _headers() -> str:
    folder = kernel_path("host/cuda_on_host.h").parent
    return "".join(path.read_text() for path in sorted(folder.rglob("*.h")))


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
