"""The BLAS: MKL where it is installed, and better manners for the threads of NumPy's own one.

OpenBLAS splits a product of a million multiplications over all cores, and its threads wait for one
another without giving the core away. Below `SHARED_FROM` that gains nothing on an idle machine, and
on a busy one a product of 20 microseconds takes ten milliseconds.

After a product its threads go on spinning for 2^26 ticks, on the cores that the elementwise kernel
after it wants for itself. `rest_early` lets them sleep sooner.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lucid_gpu.devices import loops

__all__ = [
    "SHARED_FROM",
    "UNPACKED",
    "UNSHARED",
    "UNSPLIT",
    "library",
    "matmul",
    "mkl",
    "on_few_threads",
    "rest_early",
]

SHARED_FROM = 8_000_000  # multiplications; two threads first gain at about 5 million
UNSHARED = 9216  # up to which OpenBLAS gives no part of a product, or of a sum, to another thread
UNSPLIT = 262_144  # the same of matrices with more than one row and column (its interface/gemm.c)
SPIN = 14  # binary logarithm of the ticks for which an idle thread of OpenBLAS waits awake

_Get = Callable[[], int]
_Set = Callable[[int], None]


def _openblas() -> ctypes.CDLL | None:
    """The library in NumPy's wheel, where it has one."""
    folders = (Path(np.__file__).parent.parent / "numpy.libs", Path(np.__file__).parent / ".dylibs")
    for path in (p for folder in folders for p in sorted(folder.glob("*openblas*"))):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    return None


def _thread_count(library: ctypes.CDLL | None) -> tuple[_Get, _Set] | None:
    """OpenBLAS's functions to read and set the number of threads.

    They keep the interpreter's lock: to get it back costs more than they do.
    """
    if library is not None:
        library = ctypes.PyDLL(library._name)
    for prefix in ("scipy_openblas", "openblas"):
        for suffix in ("64_", ""):
            get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
            if get is not None and put is not None:
                put.restype = None
                return get, put
    return None


def _core(library: ctypes.CDLL | None) -> str:
    """The processor for which OpenBLAS chose its kernels; ``"?"`` where it does not say."""
    for name in ("scipy_openblas_get_corename64_", "openblas_get_corename"):
        get = getattr(library, name, None)
        if get is not None:
            get.restype = ctypes.c_char_p
            return str(get().decode())
    return "?"


def rest_early(library: ctypes.CDLL | None) -> bool:
    """Shorten the time for which idle threads spin, unless the user has set it.

    OpenBLAS reads its environment when it starts its threads, which it does again after a shutdown.
    That is safe only while no other thread may be inside a product.
    """
    name = "OPENBLAS_THREAD_TIMEOUT"
    read = getattr(library, "openblas_read_env", None)
    stop = getattr(library, "blas_thread_shutdown_", None)
    if name in os.environ or read is None or stop is None or threading.active_count() > 1:
        return False
    os.environ[name] = str(SPIN)
    try:
        read()
        stop()
    finally:
        del os.environ[name]  # child processes decide for themselves
    return True


library = _openblas()
_controls = _thread_count(library)
core = _core(library)
_WITH_SMALL_KERNELS = ("SkylakeX", "Cooperlake", "SapphireRapids")
UNPACKED = 1_000_000 if core in _WITH_SMALL_KERNELS else 0
"""Multiplications up to which OpenBLAS reads matrices where they lie; others it copies first."""
rest_early(library)


def _mkl() -> ctypes.CDLL | None:
    """Return the library of the package mkl, unless NumPy has another BLAS than OpenBLAS."""
    if library is None or loops.product_ufunc is None or os.environ.get("LUCID_MKL") == "0":
        return None
    found = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))
    return ctypes.CDLL(str(found[-1])) if found else None


def _matmul() -> Any:
    """Return `numpy.matmul`, or one whose products MKL computes on the calling thread."""
    if mkl is None:
        return np.matmul
    names = ("cblas_sgemm", "cblas_dgemm", "MKL_Set_Num_Threads_Local")
    functions = [ctypes.cast(getattr(mkl, n), ctypes.c_void_p).value for n in names]
    return loops.product_ufunc(np.matmul, *functions)


mkl = _mkl()
matmul = _matmul()


class _Alone:
    """How many ask for one thread, and how many threads there are otherwise."""

    def __init__(self) -> None:
        self.wishes = 0
        self.usual = 1
        self.lock = threading.Lock()


class _Begun(threading.local):
    """What this thread has others compute (`lucid_gpu.devices.background_matmul`)."""

    def __init__(self) -> None:
        self.background: list[Any] = []


_alone = _Alone()
begun = _Begun()


def count() -> int:
    """Threads of the BLAS; 0 where that is not known."""
    return 0 if _controls is None else _controls[0]()


def use_one_thread(usual: int) -> None:
    """Compute on one thread, until as many have called `use_all_threads` as have called this."""
    if _controls is not None:
        with _alone.lock:
            if not _alone.wishes:
                _alone.usual = usual
                _controls[1](1)
            _alone.wishes += 1


def use_all_threads() -> None:
    """Take back what `use_one_thread` asked for."""
    if _controls is not None:
        with _alone.lock:
            _alone.wishes -= 1
            if not _alone.wishes:
                _controls[1](_alone.usual)


def on_few_threads(multiplications: int, product: Callable[..., Any], *args: Any) -> Any:
    """Call ``product(*args)``, on one BLAS thread where the work is too small to share."""
    if multiplications >= SHARED_FROM:
        while begun.background:  # all threads belong to this product
            begun.background[-1].end()
        return product(*args)
    usual = count()
    if usual <= 1:
        return product(*args)
    use_one_thread(usual)
    try:
        return product(*args)
    finally:
        use_all_threads()
