"""``python -m lucid_gpu.precompile --arch 80,90``: kernels, compiled without a GPU.

These are the hand-written ones, every instance that the families of `lucid_gpu.kernels` list, and
those of the op table's ops, which run while a fused kernel is compiled
(`lucid_gpu.fusion.op_kernels`). What NVRTC makes of them is kept where a program looks for it: in
``CUPY_CACHE_DIR``, under the key that it asks for on a GPU of that architecture with the same CuPy,
NVRTC and CUDA headers. An image built so starts without waiting for a compiler, and the folder can
be carried to another machine, where ``--missing`` says what of it fits. ``--archive FILE`` puts
them into one file instead, which programs read where ``LUCID_KERNELS`` names it or where it lies in
the package as ``_kernels/compiled.zip``, with any CuPy and NVRTC. Kernels of fused expressions are
generated while a program runs, and are not among them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import lucid_gpu.kernels
from lucid_gpu.devices import cupy_backend
from lucid_gpu.fusion.op_kernels import table_kernels
from lucid_gpu.launch import Kernel, nvrtc
from lucid_gpu.launch.nvrtc import GENERATED, OPTIONS
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
    options : tuple of str
        What NVRTC is told.
    """

    name: str
    text: str
    options: tuple[str, ...] = OPTIONS


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
    """The text of every one of these instances, and of the op table's kernels.

    Yields
    ------
    Source
    """
    for _, kernel, template in instances():
        instance = kernel.instance(**template)
        yield Source(instance.name, complete(instance.source))
    for text in table_kernels():
        yield Source(text.name, complete(text.source), GENERATED)


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
        If NVRTC refuses the source; the sentence shows the line.
    """
    nvrtc.kept(source.text, source.name, source.options, architecture)


def _architectures(text: str) -> list[int]:
    """``"80,90"`` as numbers that this NVRTC knows."""
    known = sorted(nvrtc.library().getSupportedArchs())
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
        description="Compile hand-written kernels and those of single ops into CuPy's cache; "
        "no GPU is needed.",
    )
    flags.add_argument("--arch", required=True, help="architectures of GPUs, such as 80,90")
    flags.add_argument("--missing", action="store_true", help="only say how many are there")
    flags.add_argument("--cache", help="the folder, by default CUPY_CACHE_DIR or ~/.cupy/...")
    flags.add_argument("--archive", help="a file to put them into, for LUCID_KERNELS")
    options = flags.parse_args(arguments)
    if options.cache is not None:
        os.environ["CUPY_CACHE_DIR"] = os.path.abspath(options.cache)  # read when CuPy is imported
    try:
        if options.missing:
            print(_missing(options.arch))
        else:
            print(_precompile(options.arch, options.archive))
    except ImportError as error:
        message = f"{error}; NVRTC comes with {cupy_backend.INSTALL}"
    except (OSError, ValueError, RuntimeError) as error:
        message = str(error)
    else:
        return 0
    print(f"precompile: {message}", file=sys.stderr)
    return 1


def _folder() -> Path:
    if nvrtc.in_memory():
        raise ValueError("CUPY_CACHE_IN_MEMORY keeps every kernel from the disk: unset it")
    return nvrtc.folder()


def _work(architectures: Sequence[int]) -> list[tuple[int, Source]]:
    """What there is to compile: Hopper's own for it only."""
    distinct = dict.fromkeys(sources())  # two families may list the same one
    return [
        (n, s) for n in architectures for s in distinct if n == 90 or nvrtc.HOPPER not in s.text
    ]


def _missing(arch: str) -> str:
    architectures, folder = _architectures(arch), _folder()
    work = _work(architectures)
    places = [nvrtc.cache_path(s.text, s.options, number) for number, s in work]
    there = sum(path.exists() for path in places)
    here = ".".join(map(str, nvrtc.library().getVersion()))
    summary = (
        f"{there} of {len(places)} kernels for {', '.join(f'sm_{a}' for a in architectures)} "
        f"by this NVRTC ({here}) are in {folder}"
    )
    others = len(list(folder.glob("*.cubin"))) if folder.exists() else 0
    if others and not there:
        summary += f": nothing of the {others} files there fits, they were made by another NVRTC, "
        summary += "CuPy or for another architecture"
    return summary


def _archived(path: str, work: Sequence[tuple[int, Source]]) -> str:
    """Write an archive of what was compiled, all of it or nothing."""
    part = Path(f"{path}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, s in work:
            code = nvrtc.cache_path(s.text, s.options, number).read_bytes()
            archive.writestr(nvrtc.archive_name(s.text, s.options, number), code)
    os.replace(part, path)
    return f"; {path} holds them in {Path(path).stat().st_size / 2**20:.1f} MiB"


def _precompile(arch: str, archive: str | None = None) -> str:
    architectures, folder = _architectures(arch), _folder()
    before, began = len(list(folder.glob("*.cubin"))), time.perf_counter()
    work = _work(architectures)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in _progress(pool.map(compile_for, *zip(*work)), len(work)):
            pass
    files = list(folder.glob("*.cubin"))
    return (
        f"{len(work)} kernels for {', '.join(f'sm_{a}' for a in architectures)}, "
        f"{len(files) - before} of them new, in {time.perf_counter() - began:.0f} s: "
        f"{folder} holds {sum(f.stat().st_size for f in files) / 2**20:.1f} MiB"
        + (_archived(archive, work) if archive else "")
    )


if __name__ == "__main__":
    sys.exit(main())
