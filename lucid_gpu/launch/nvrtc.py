"""CUDA C compiled by NVRTC and kept as a file in CuPy's cache folder.

`cupy.RawKernel` is not given the source: CuPy ends what it tells NVRTC with ``-ftz=true``, by which
denormal numbers in float32 become zero, unlike on the CPU, and of two such options the last one
counts. CuPy only loads the file.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucid_gpu.devices import cupy_backend, installing
from lucid_gpu.launch.compile_errors import CompileError
from lucid_gpu.launch.kernel_sources import kernel_folder

OPTIONS = ("-std=c++17", "-ftz=false", "-prec-div=true", "-prec-sqrt=true")  # IEEE arithmetic
GENERATED = (*OPTIONS, "--fmad=false")  # see `Text.contract`; an fma() that is written stays one
HOPPER = "__CUDA_ARCH_FEAT_SM90_ALL"  # where a source asks for what only sm_90a has, such as wgmma
HEADERS = ("cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "cuda_bf16.hpp")  # what kernels include


def load(cupy: Any, index: int, source: str, name: str, options: Sequence[str]) -> Any:
    """A kernel for a GPU, as CuPy's RawKernel; one that was kept is not compiled again.

    Raises
    ------
    CompileError
        If NVRTC refuses the source.
    """
    wanted = architecture_for(int(cupy.cuda.Device(index).compute_capability))
    if not in_memory():
        path = kept(source, name, options, wanted)
        return cupy.RawModule(path=str(path)).get_function(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(made(source, name, options, wanted))
        return cupy.RawModule(path=str(path)).get_function(name)  # which loads it at once


def in_memory() -> bool:
    """Whether CuPy is set to keep no kernel on disk."""
    return os.environ.get("CUPY_CACHE_IN_MEMORY", "") == "1"


@functools.cache
def architecture_for(capability: int) -> int:
    """What kernels for such a GPU are compiled for: at most the newest that NVRTC knows."""
    return min(capability, max(library().getSupportedArchs()))


def target(source: str, architecture: int) -> str:
    """NVRTC's name of an architecture: a source that looks for `HOPPER` is compiled for sm_90a."""
    return (
        f"sm_{architecture}a" if architecture == 90 and HOPPER in source else f"sm_{architecture}"
    )


def kept(source: str, name: str, options: Sequence[str], architecture: int) -> Path:
    """The file of a kernel compiled for an architecture, which is made where it is not there."""
    path = cache_path(source, options, architecture)
    if path.exists():
        return path
    code = made(source, name, options, architecture)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(code)
    os.replace(file.name, path)  # other processes see all of it or nothing
    return path


def cache_path(source: str, options: Sequence[str], architecture: int) -> Path:
    """The file of a kernel, which need not be there: a key of all that its code depends on.

    Folders are none of it, so that a cache can be filled on one machine for another.
    """
    complete = _full_options(tuple(options), target(source, architecture))
    key = [source, *(o for o in complete if not o.startswith("-I")), _compiler(complete)]
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()
    return folder() / f"lucid_gpu-{digest[:40]}.cubin"


@functools.cache
def _compiler(complete: tuple[str, ...]) -> str:
    """NVRTC's version, and CuPy's and CUDA's headers."""
    texts = [str(library().getVersion()), cupy_backend.import_cupy().__version__]
    for name in HEADERS:
        paths = (Path(o[2:], name) for o in complete if o.startswith("-I"))
        header = next((path for path in paths if path.exists()), None)
        texts.append(hashlib.sha256(header.read_bytes()).hexdigest() if header else "none")
    return " ".join(texts)


def folder() -> Path:
    """Where kernels are kept."""
    cupy_backend.import_cupy()  # chooses another one where it cannot be written
    return Path(cupy_backend.cache_folder())


def made(source: str, name: str, options: Sequence[str], architecture: int) -> bytes:
    """Return the code for an architecture, out of the archive or else compiled.

    Code runs on later GPUs of its generation too: that of sm_80 on one of sm_86.
    """
    archive, names = archived()
    for older in range(architecture, architecture // 10 * 10 - 1, -1) if names else ():
        if (entry := archive_name(source, options, older)) in names:
            return archive.read(entry)
    return compiled(source, name, options, architecture)


def archive_name(source: str, options: Sequence[str], architecture: int) -> str:
    """Return what a kernel is called in an archive, whichever NVRTC has compiled it."""
    key = "\0".join([source, *options, str(architecture)])
    return f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.cubin"


@functools.cache
def archived() -> tuple[Any, frozenset[str]]:
    """Return the archive of `lucid_gpu.precompile` that there is, and what it holds.

    Raises
    ------
    ValueError
        If ``LUCID_KERNELS`` names no archive.
    """
    named = os.environ.get("LUCID_KERNELS")
    path = Path(named) if named else kernel_folder() / "compiled.zip"
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        if not named:
            return None, frozenset()
        raise ValueError(
            f"LUCID_KERNELS is the archive that python -m lucid_gpu.precompile --arch 90 --archive "
            f"FILE writes; {named} is not: {error}"
        ) from None
    return archive, frozenset(archive.namelist())


def compiled(source: str, name: str, options: Sequence[str], architecture: int) -> bytes:
    """The code for an architecture.

    Raises
    ------
    CompileError
        If NVRTC refuses the source; the message shows the line.
    """
    here = library()
    program = here.createProgram(source, f"{name}.cu", (), ())
    try:
        wanted = target(source, architecture)
        here.compileProgram(program, _full_options(tuple(options), wanted))
        code: bytes = here.getCUBIN(program)
    except here.NVRTCError:
        raise CompileError(name, "NVRTC", here.getProgramLog(program), source) from None
    finally:
        here.destroyProgram(program)
    return code


@functools.cache
def _full_options(options: tuple[str, ...], architecture: str) -> tuple[str, ...]:
    """The options, with the folders of CUDA's headers, which CuPy knows."""
    assembled = cupy_backend.import_cupy()._core.core.assemble_cupy_compiler_options(options)
    return (*assembled, f"-arch={architecture}")


def library() -> Any:
    """CuPy's binding of NVRTC, which needs no GPU."""
    cupy_backend.import_cupy()
    return installing.binding("nvrtc")
