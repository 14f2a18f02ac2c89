"""Builds the driver stand-in, and a copy of `cupy_backends` that uses it.

    python tests/driver/build.py pytest tests/driver        # runs Python over it
    python tests/driver/build.py                            # only builds it

CuPy's wheel links NVIDIA's runtime into one of its modules, and that one refuses a foreign driver.
So this module, `cupy_backends.cuda.api.runtime`, is compiled anew from the sources of the installed
CuPy and linked with `library/runtime_api.c`. It goes into a folder of its own beside links to the
wheel's other modules; the installed CuPy stays as it is.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADERS = HERE / "library" / "headers"  # of NVIDIA's, those that come with its compiler
BUILD = ROOT / "build" / "driver"
CUPY = "cupy-cuda12x"
FLAGS = ("-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-std=c11")
DRIVER = ("counts.c", "driver_api.c", "errors.c", "memory.c", "modules.c", "streams.c")
# What CuPy's own build tells Cython.
DIRECTIVES = {
    "embedsignature": True,
    "c_api_binop_methods": True,
    "binding": False,
    "freethreading_compatible": True,
    "warn.deprecated.IF": False,
}
CONSTANTS = {
    "CUPY_USE_CUDA_PYTHON": False,
    "CUPY_CUFFT_STATIC": False,
    "CUPY_CUDA_VERSION": 12090,
    "CUPY_HIP_VERSION": 0,
}


class NotBuilt(Exception):
    """What is missing, in a sentence."""


def built() -> Path:
    """The folder with the stand-in, made where it is not there.

    Raises
    ------
    NotBuilt
        Without a compiler, Cython, Python's headers or CuPy's sources.
    """
    version = _version()
    parts = [version, sys.version, *(p.read_text("utf-8") for p in _sources())]
    target = BUILD / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    if not target.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as name:
            scratch = Path(name, "made")
            scratch.mkdir()
            _build(scratch, version)
            try:
                os.rename(scratch, target)
            except OSError:  # another process was faster
                if not target.exists():
                    raise
    return target


def environment(target: Path) -> dict[str, str]:
    """The variables with which a process finds the stand-in."""
    known = dict(os.environ)
    known["LD_LIBRARY_PATH"] = _joined(target / "lib", known.get("LD_LIBRARY_PATH"))
    known["PYTHONPATH"] = _joined(target / "python", known.get("PYTHONPATH"))
    known["CUPY_CACHE_DIR"] = str(BUILD / "kernels")  # what is kept there is tied to its source
    known["CUPY_ACCELERATORS"] = ""  # CUB's kernels are not among those that the host can run
    known.setdefault("LUCID_DRIVER_SEED", "1")  # independent work in another order than queued
    known["LUCID_DRIVER_STANDIN"] = str(target)
    return known


def _joined(first: Path, rest: str | None) -> str:
    return os.pathsep.join([str(first), *([rest] if rest else [])])


def _version() -> str:
    try:
        return importlib.metadata.version(CUPY)
    except importlib.metadata.PackageNotFoundError:
        raise NotBuilt(f"{CUPY} is not installed: python -m pip install -e '.[test]'") from None


def _sources() -> Iterator[Path]:
    yield Path(__file__)
    yield from sorted((HERE / "library").rglob("*.[ch]"))
    yield from sorted((HERE / "overlay").glob("*.py"))


# --- the libraries ------------------------------------------------------------------------------


def _build(target: Path, version: str) -> None:
    compiler = _program("gcc")
    installed = _folder("cupy_backends")
    headers = _folder("nvidia.cuda_runtime") / "include"
    library = target / "lib"
    library.mkdir()
    _run(
        compiler, *FLAGS, *_headers(headers), "-shared", "-Wl,-soname,libcuda.so.1",
        *(HERE / "library" / name for name in DRIVER), "-lpthread",
        "-o", library / "libcuda.so.1",
    )  # fmt: skip
    _build_cublas(compiler, headers, library, installed)
    overlay = target / "python"
    _link_tree(installed, overlay / "cupy_backends")
    shutil.copy(HERE / "overlay" / "driver_standin.py", overlay)
    package = overlay / "cupy_backends" / "__init__.py"
    package.unlink()
    shutil.copy(HERE / "overlay" / "cupy_backends.py", package)
    shutil.copytree(HERE / "library" / "host", target / "host")
    (binding,) = (overlay / "cupy_backends" / "cuda" / "api").glob("runtime.*.so")
    binding.unlink()
    _build_runtime(compiler, headers, library, _cupy_sources(version), binding)


def _headers(folder: Path) -> list[str | Path]:
    """Options with which C finds CUDA's headers."""
    return ["-I", HEADERS, "-isystem", folder]


def _build_cublas(compiler: str, headers: Path, library: Path, installed: Path) -> None:
    """`library/cublas.c`, and a refusal in place of every other function that CuPy links."""
    (binding,) = (installed / "cuda" / "libs").glob("cublas.*.so")
    own = library / "cublas.o"
    _run(
        compiler, *FLAGS, *_headers(headers), "-c", HERE / "library" / "cublas.c", "-o", own,
    )  # fmt: skip
    rest = sorted(_symbols(binding, "--undefined-only", "cublas") - _symbols(own, "-g", "cublas"))
    linked = ("-L", library, "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN")
    _run(
        compiler, *FLAGS, *_headers(headers), "-shared", "-Wl,-soname,libcublasLt.so.12",
        HERE / "library" / "cublas_lt.c", f"-Wl,--version-script={_versions(library, 'cublasLt')}",
        *linked, "-o", library / "libcublasLt.so.12",
    )  # fmt: skip
    _run(
        compiler, *FLAGS, "-shared", "-Wl,-soname,libcublas.so.12",
        own, _refusals(library, rest, 15),
        f"-Wl,--version-script={_versions(library, 'cublas')}", *linked,
        "-Wl,--no-as-needed", "-l:libcublasLt.so.12", "-o", library / "libcublas.so.12",
    )  # fmt: skip


def _versions(folder: Path, name: str) -> Path:
    """CuPy asks for cuBLAS's symbols by their version."""
    path = folder / f"{name}.map"
    path.write_text(f"lib{name}.so.12 {{ global: {name}*; local: *; }};\n")
    return path


def _refusals(folder: Path, names: list[str], status: int) -> Path:
    """A C file in which each function does nothing but say that it is not supported."""
    path = folder / f"refusals_{status}.c"
    lines = [f'__attribute__((visibility("default"))) int {n}(void) {{ return {status}; }}'
             for n in names]  # fmt: skip
    lines += [f"int {n}(void);" for n in names]
    path.write_text("\n".join(sorted(lines, reverse=True)) + "\n")
    return path


def _symbols(path: Path, which: str, prefix: str) -> set[str]:
    dynamic = ["-D"] if path.suffix == ".so" else []
    lines = _run(_program("nm"), *dynamic, which, path).splitlines()
    names = {line.split()[-1].partition("@")[0] for line in lines}
    return {name for name in names if name.startswith(prefix)}


# --- CuPy's module ------------------------------------------------------------------------------


def _build_runtime(
    compiler: str, headers: Path, library: Path, sources: Path, binding: Path
) -> None:
    """CuPy's binding of the CUDA runtime, with our runtime in it."""
    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").exists():
        raise NotBuilt(
            f"Python's headers are missing ({python}); on Debian: apt-get install python3-dev"
        )
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        written = scratch / "runtime.cpp"
        _cythonize(sources, written)
        options = ("-O1", "-fPIC", "-w", "-I", HEADERS, "-I", python, "-isystem", headers)
        inside = sources / "cupy_backends" / "cuda" / "api"
        bound, ours = scratch / "binding.o", scratch / "runtime.o"
        _run(compiler, *options, "-iquote", inside, "-x", "c++", "-c", written, "-o", bound)
        _run(
            compiler, *FLAGS, *_headers(headers), "-c", HERE / "library" / "runtime_api.c",
            "-o", ours,
        )  # fmt: skip
        rest = sorted(_symbols(bound, "--undefined-only", "cuda") - _symbols(ours, "-g", "cuda"))
        _run(
            compiler, "-shared", "-fPIC", bound, ours, _refusals(scratch, rest, 801),
            "-L", library, "-l:libcuda.so.1", f"-Wl,-rpath,{library}", "-o", binding,
        )  # fmt: skip


def _cythonize(sources: Path, written: Path) -> None:
    if importlib.util.find_spec("Cython") is None:
        raise NotBuilt("Cython is not installed: python -m pip install -e '.[driver]'")
    _run(
        sys.executable, "-m", "cython", "--cplus", "-3", "-I", sources,
        *(f"-X{name}={value}" for name, value in DIRECTIVES.items()),
        *(f"-E{name}={value}" for name, value in CONSTANTS.items()),
        "--module-name", "cupy_backends.cuda.api.runtime", "-o", written,
        sources / "cupy_backends" / "cuda" / "api" / "runtime.pyx",
    )  # fmt: skip


def _cupy_sources(version: str) -> Path:
    """CuPy's sources of a version, from the package index, unpacked."""
    folder = BUILD / f"cupy-{version}"
    if folder.exists():
        return folder
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        # Without CUDA_PATH and with stubs, the sdist's own setup needs no CUDA to say its name.
        told = {**os.environ, "CUPY_INSTALL_USE_STUB": "1"}
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", name,
            f"cupy=={version}",
        ]  # fmt: skip
        ran = subprocess.run(command, env=told, capture_output=True, text=True)
        archives = list(Path(name).glob("*.tar.gz"))
        if ran.returncode or not archives:
            last = (ran.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise NotBuilt(f"CuPy's sources cannot be had; is a package index within reach? {last}")
        with tarfile.open(archives[0]) as archive:
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
            archive.extractall(name, **safely)
        os.rename(Path(name, f"cupy-{version}"), folder)
    return folder


def _link_tree(source: Path, target: Path) -> None:
    """The same folders, with links in place of files."""
    for path in source.rglob("*"):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        link = target / path.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())


# --- programs -----------------------------------------------------------------------------------


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise NotBuilt(f"{package} is not installed: python -m pip install -e '.[test,driver]'")
    return Path(next(iter(found.submodule_search_locations)))


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotBuilt(
            f"there is no {name}; on Debian and Ubuntu: apt-get install gcc g++ binutils"
        )
    return found


def _run(*command: str | Path) -> str:
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode:
        raise NotBuilt(f"{' '.join(str(part) for part in command[:1])} failed:\n{ran.stderr}")
    return ran.stdout


def main() -> None:
    """Build; with arguments, run `python -m` with them over the stand-in."""
    try:
        target = built()
    except NotBuilt as problem:
        sys.exit(f"the driver stand-in cannot be built: {problem}")
    if sys.argv[1:]:
        os.execve(sys.executable, [sys.executable, "-m", *sys.argv[1:]], environment(target))
    print(target)


if __name__ == "__main__":
    main()
