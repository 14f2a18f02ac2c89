"""``python -m lucid_gpu.precompile --arch 80,90``: hand-written kernels, compiled without a GPU.

What NVRTC makes of every instance that the families of `lucid_gpu.kernels` list is kept where CuPy
looks for it: in ``CUPY_CACHE_DIR``, under the key that the same CuPy, installed in the same folder,
asks for on a GPU of that architecture. An image built so starts without compiling. Kernels of fused
expressions are generated while a program runs, and are not among them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import pkgutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import lucid_gpu.kernels
from lucid_gpu.devices import cupy_room
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.compile_errors import CompileError
from lucid_gpu.launch.cuda import OPTIONS
from lucid_gpu.launch.source import complete

__all__ = ["Source", "compile_for", "instances", "main", "sources"]


class Source(NamedTuple):
    """The text of one kernel, includes written out.

    Attributes
    ----------
    name : str
        Of the ``extern "C"`` function.
    text : str
        CUDA C.
    """

    name: str
    text: str


def instances() -> Iterator[tuple[ModuleType, Kernel, dict[str, Any]]]:
    """What the modules of `lucid_gpu.kernels` list in ``INSTANCES``.

    Yields
    ------
    module, kernel, template
    """
    for module in pkgutil.iter_modules(lucid_gpu.kernels.__path__):
        family = importlib.import_module(f"lucid_gpu.kernels.{module.name}")
        for kernel, template in getattr(family, "INSTANCES", ()):
            yield family, kernel, template


def sources() -> Iterator[Source]:
    """The text of every one of these instances.

    Yields
    ------
    Source
    """
    for _, kernel, template in instances():
        instance = kernel.instance(**template)
        yield Source(instance.name, complete(instance.source))


def compile_for(architecture: int, source: Source) -> None:
    """Compile one kernel into CuPy's cache, unless it is there.

    Parameters
    ----------
    architecture : int
        Such as 90 for sm_90.
    source : Source

    Raises
    ------
    RuntimeError
        Where NVRTC refuses the source; the sentence shows the line.
    """
    cupy = cupy_room.import_cupy()
    try:
        # What `cupy.RawKernel` calls, but for the architecture, which it asks the GPU for.
        cupy._core.core.compile_with_cache(
            source.text, OPTIONS, str(architecture), prepend_cupy_headers=False
        )
    except cupy.cuda.compiler.CompileException as error:
        raise CompileError(source.name, "NVRTC", str(error), source.text) from None


@contextlib.contextmanager
def nothing_loaded() -> Iterator[None]:
    """CuPy compiles and keeps, and asks no driver: what it compiled is not loaded."""
    cuda = cupy_room.import_cupy().cuda

    class Unloaded(cuda.function.Module):  # type: ignore[name-defined]
        def load(self, cubin: bytes) -> None:
            """There may be no GPU, or one of another architecture."""

    # Remembered by device, which would be asked for.
    options = cuda.compiler._get_arch_for_options_for_nvrtc.__wrapped__
    with (
        mock.patch.object(cuda.function, "Module", Unloaded),
        mock.patch.object(cuda.compiler, "_get_arch_for_options_for_nvrtc", options),
    ):
        yield


def _architectures(text: str) -> list[int]:
    """``"80,90"`` as numbers that this NVRTC knows."""
    cupy_room.import_cupy()
    from cupy_backends.cuda.libs import nvrtc

    known = sorted(nvrtc.getSupportedArchs())
    wanted = text.replace(",", " ").split()
    wrong = [word for word in wanted if word not in map(str, known)]
    if wrong or not wanted:
        raise ValueError(
            f"--arch wants numbers such as 80,90, out of {', '.join(map(str, known))}, which this "
            f"NVRTC knows; got {' '.join(wrong) or 'none'}. A GPU's is its compute capability "
            "without the dot: nvidia-smi --query-gpu=compute_cap --format=csv"
        )
    return sorted({int(word) for word in wanted})


def _progress(work: Iterable[Any], total: int) -> Iterable[Any]:
    """A bar on a terminal, where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return work
    return tqdm(work, total=total, unit="kernel", disable=None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile all for each architecture; 1 where that cannot be, with a sentence."""
    flags = argparse.ArgumentParser(
        prog="python -m lucid_gpu.precompile",
        description="Compile the hand-written kernels into CuPy's cache; no GPU is needed.",
    )
    flags.add_argument("--arch", required=True, help="architectures of GPUs, such as 80,90")
    flags.add_argument("--cache", help="the folder, by default CUPY_CACHE_DIR or ~/.cupy/...")
    options = flags.parse_args(arguments)
    if options.cache is not None:
        os.environ["CUPY_CACHE_DIR"] = os.path.abspath(options.cache)  # read when CuPy is imported
    try:
        print(_precompile(options.arch))
    except ImportError as error:
        told = f"{error}; NVRTC comes with {cupy_room.INSTALL}"
    except (OSError, ValueError, RuntimeError) as error:
        told = str(error)
    else:
        return 0
    print(f"precompile: {told}", file=sys.stderr)
    return 1


def _precompile(arch: str) -> str:
    architectures = _architectures(arch)
    compiler = cupy_room.import_cupy().cuda.compiler
    if compiler._get_bool_env_variable("CUPY_CACHE_IN_MEMORY", False):
        raise ValueError("CUPY_CACHE_IN_MEMORY keeps every kernel from the disk: unset it")
    folder = Path(compiler._kernel_cache_backend._cache_dir)
    before, began = len(list(folder.glob("*.cubin"))), time.perf_counter()
    distinct = dict.fromkeys(sources())  # two families may list the same one
    work = [(number, source) for number in architectures for source in distinct]
    with nothing_loaded(), ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in _progress(pool.map(compile_for, *zip(*work)), len(work)):
            pass
    files = list(folder.glob("*.cubin"))
    return (
        f"{len(work)} kernels for {', '.join(f'sm_{a}' for a in architectures)}, "
        f"{len(files) - before} of them new, in {time.perf_counter() - began:.0f} s: "
        f"{folder} holds {sum(f.stat().st_size for f in files) / 2**20:.1f} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
