"""What tests ask of the driver stand-in, and the kernels that run in it.

Python imports this with `cupy_backends`, in every process that uses the stand-in. It notes of
which source NVRTC made which code. When CuPy asks the driver for a kernel of that code, the same
source is compiled for the host by `lucid_gpu.launch.host`, CuPy's own kernels as well as ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.abc
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "sources"  # by the hash of the code that NVRTC made of them
HEADERS = HERE.parent / "host"  # of NVIDIA's, those that CuPy's kernels include
# CuPy's headers are written for CUDA's compiler of a version that has its own float16.
FOR_CUPY = ("-D__CUDACC_VER_MAJOR__=12",)

SEED = int(os.environ.get("LUCID_DRIVER_SEED", "0"))  # of the order outside of `order`

driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
driver.driver_counts.restype = ctypes.c_size_t
driver.driver_counts.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
driver.driver_fail_allocations.argtypes = [ctypes.c_long, ctypes.c_long]
driver.driver_set_memory.argtypes = [ctypes.c_int, ctypes.c_size_t]
driver.driver_settle.restype = ctypes.c_char_p
driver.driver_seed.argtypes = [ctypes.c_uint64]

# --- what tests ask -----------------------------------------------------------------------------


def counts() -> dict[str, int]:
    """What was asked of the driver since `reset_counts`, such as ``{"launch cupy_add": 2}``."""
    text = ctypes.create_string_buffer(1 << 16)
    needed = driver.driver_counts(text, len(text))
    if needed >= len(text):
        text = ctypes.create_string_buffer(needed + 1)
        driver.driver_counts(text, len(text))
    lines = text.value.decode().splitlines()
    return {name: int(amount) for amount, _, name in (line.partition(" ") for line in lines)}


def reset_counts() -> None:
    """Count from zero."""
    driver.driver_reset_counts()


def not_executed() -> list[str]:
    """The kernels that ran as nothing: where there are any, no value means anything."""
    start = "not executed "
    return sorted(name.removeprefix(start) for name in counts() if name.startswith(start))


def settled() -> str:
    """Do all work that is left; the error that stayed, if any did, which is taken away."""
    name: bytes = driver.driver_settle()
    return name.decode()


@contextlib.contextmanager
def order(seed: int) -> Iterator[None]:
    """Independent work runs in another order for each seed; 0 is the order it was queued in."""
    driver.driver_seed(seed)
    try:
        yield
    finally:
        driver.driver_seed(SEED)


@contextlib.contextmanager
def failing_allocations(after: int, times: int = 1) -> Iterator[None]:
    """After so many allocations on devices, the next ones fail, ``times`` of them."""
    driver.driver_fail_allocations(after, times)
    try:
        yield
    finally:
        driver.driver_fail_allocations(0, 0)


@contextlib.contextmanager
def peer_access() -> Iterator[None]:
    """Devices can be allowed to use each other's memory; otherwise they cannot."""
    driver.driver_set_peer_access_possible(1)
    try:
        yield
    finally:
        driver.driver_set_peer_access_possible(0)


# --- which source some code was made of ---------------------------------------------------------


class _Programs:
    """Stands before CuPy's binding of NVRTC and notes sources."""

    def __init__(self, binding: Any) -> None:
        self.create, self.compile = binding.createProgram, binding.compileProgram
        self.code = binding.getCUBIN
        self.known: dict[int, dict[str, Any]] = {}
        binding.createProgram = self.created
        binding.compileProgram = self.compiled
        binding.getCUBIN = self.made

    def created(self, source: str, name: str, headers: Any, include_names: Any) -> int:
        program: int = self.create(source, name, headers, include_names)
        self.known[program] = {"source": source}
        return program

    def compiled(self, program: int, options: Sequence[str]) -> None:
        self.known[program]["options"] = list(options)
        self.compile(program, options)

    def made(self, program: int) -> bytes:
        code: bytes = self.code(program)
        path = _source_of(code)
        if not path.exists():
            SOURCES.mkdir(exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            part.write_text(json.dumps(self.known[program]), "utf-8")
            part.rename(path)
        return code


def _source_of(code: bytes) -> Path:
    code = code.rstrip(b"\0")  # CuPy leaves out the last byte
    return SOURCES / f"{hashlib.sha256(code).hexdigest()[:40]}.json"


# --- kernels for the host -----------------------------------------------------------------------

_COMPILER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t),
)  # fmt: skip
_libraries: list[Any] = []  # loaded as long as the process lives
problems: dict[str, str] = {}  # by kernel: why it cannot run on the host


@_COMPILER
def _find(image: int, size: int, name: bytes, kernel: Any, stack: Any) -> int:
    try:
        address, stack[0] = _compiled(ctypes.string_at(image, size), name.decode())
    except Exception as error:  # C cannot raise it; `problems` says it, and the launch is counted
        problems[name.decode()] = f"{type(error).__name__}: {error}"
        return 0
    kernel[0] = address
    return 1


def _compiled(code: bytes, name: str) -> tuple[int, int]:
    """The address of a kernel on the host, and what stack each of its threads needs."""
    from lucid_gpu.launch import host
    from lucid_gpu.launch.source import is_cooperative

    path = _source_of(code)
    if not path.exists():
        raise LookupError("no source is known of this code")
    source = json.loads(path.read_text("utf-8"))["source"]
    # What is included with quotes, `host` looks for among lucid_gpu's own files.
    source = re.sub(r'#include "(cupy/\S+)"', r"#include <\1>", source)
    if name.startswith("_Z"):  # an instance of a template
        source += f"\nstatic constexpr auto driver_instance = &{_written(name)};\n"
        name = "driver_instance"
    cooperative = is_cooperative(source)
    with _cupy_headers() if "cupy" in source else contextlib.nullcontext():
        library = ctypes.CDLL(str(host.build(name, source, cooperative)))
    _libraries.append(library)
    address = ctypes.cast(library.lucid_host_launch, ctypes.c_void_p).value
    assert address is not None
    return address, host.STACK if cooperative else 0


def _written(name: str) -> str:
    """An instance of a template as C++ writes it, from the name that the code has."""
    command = ["c++filt", "--no-params", name]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.strip().removeprefix("void ")


_flags = threading.Lock()


@contextlib.contextmanager
def _cupy_headers() -> Iterator[None]:
    """`lucid_gpu.launch.host` compiles with CuPy's headers."""
    import cupy

    from lucid_gpu.launch import host

    folder = Path(cupy.__file__).parent / "_core" / "include"
    with _flags:
        before = host.FLAGS
        host.FLAGS = (*before, *FOR_CUPY, f"-I{HEADERS}", f"-I{folder}")
        try:
            yield
        finally:
            host.FLAGS = before


# --- sorting ------------------------------------------------------------------------------------


def _sorting() -> types.ModuleType:
    """In place of `cupy.cuda.thrust`, whose kernels are machine code for GPUs only.

    It sorts on the host, having waited for the current stream.
    """
    import numpy

    def array(address: int, dtype: Any, shape: Sequence[int]) -> Any:
        import cupy

        cupy.cuda.get_current_stream().synchronize()
        dtype = numpy.dtype(dtype)
        memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
        return numpy.frombuffer(memory, dtype).reshape(shape)

    def sort(dtype: Any, data: int, keys: int, shape: Sequence[int]) -> None:
        array(data, dtype, shape).sort(axis=-1, kind="stable")

    def argsort(dtype: Any, index: int, data: int, keys: int, shape: Sequence[int]) -> None:
        values = array(data, dtype, shape)
        array(index, numpy.intp, shape)[...] = numpy.argsort(values, axis=-1, kind="stable")

    def lexsort(dtype: Any, index: int, keys: int, count: int, size: int) -> None:
        values = array(keys, dtype, (count, size))
        array(index, numpy.intp, (size,))[...] = numpy.lexsort(values)

    module = types.ModuleType("cupy.cuda.thrust", _sorting.__doc__)
    vars(module).update(sort=sort, argsort=argsort, lexsort=lexsort, available=True)
    return module


# --- when modules are imported ------------------------------------------------------------------


class _Watch(importlib.abc.MetaPathFinder):
    """Calls functions with modules that were just imported."""

    def __init__(self, after: dict[str, Any]) -> None:
        self.after = after

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        call = self.after.pop(name, None)
        if call is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def executed(module: Any) -> None:
            execute(module)
            call(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


@functools.cache
def install() -> None:
    """Called when `cupy_backends` is imported."""
    for name in ("libcublasLt.so.12", "libcublas.so.12"):  # by which CuPy finds them loaded
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    driver.driver_set_compiler(_find)
    driver.driver_seed(SEED)
    sys.modules["cupy.cuda.thrust"] = _sorting()
    sys.meta_path.insert(0, _Watch({"cupy_backends.cuda.libs.nvrtc": _Programs}))
