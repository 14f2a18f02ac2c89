"""What is installed, whether it works, and what mends it; a line a check.

Where there is no GPU the lines say so and nothing fails, unless ``--device cuda`` asks for one. The
exit status is 1 when a line failed, so that a container's health check can ask.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import lucid_gpu
from lucid_gpu.devices import blas, cupy_backend, installing, loops
from lucid_gpu.devices import cudnn as cudnn_package
from lucid_gpu.tape import native

__all__ = ["Line", "examine", "main"]

GPU_MISSING = ("CuPy is not installed", "there is no NVIDIA driver", "the driver lists no GPU")


NEEDS = {"numpy": "2.0", "ml_dtypes": "0.5"}  # as pyproject.toml says


class Line(NamedTuple):
    """What one check found.

    Attributes
    ----------
    name : str
    state : str
        ``"ok"``, ``"none"`` (absent, and nobody asked for it) or ``"failed"``.
    found : str
    mend : str
        What to do about a line that failed, most often a command.
    """

    name: str
    state: str
    found: str
    mend: str = ""


class Ill(Exception):
    """A check that failed: what it found, and what mends it."""

    def __init__(self, finding: str, mend: str) -> None:
        super().__init__(finding)
        self.finding, self.mend = finding, mend


class _Absent(Exception):
    """Something that need not be there is not; after "; ", how to get it."""


def versions() -> str:
    """lucid_gpu, Python, NumPy and the system."""
    for name, least in NEEDS.items():
        installed = metadata.version(name)
        if _numbers(installed) < _numbers(least):
            raise Ill(
                f"{name} {installed} is installed, and lucid_gpu wants {least} or newer",
                f"python -m pip install --upgrade '{name}>={least}'",
            )
    named = [f"{name} {metadata.version(name)}" for name in NEEDS]
    python = f"Python {platform.python_version()}"
    return ", ".join([f"lucid_gpu {lucid_gpu.__version__}", python, *named, platform.platform()])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def matrix_products() -> str:
    """The BLAS and the threads."""
    library = blas.library
    if library is None:
        raise _Absent("NumPy has no OpenBLAS of its own: its threads are not lucid_gpu's to steer")
    threads = lucid_gpu.get_num_threads()
    wanted = os.environ.get("OPENBLAS_CORETYPE")
    chosen = f", told by OPENBLAS_CORETYPE={wanted}" if wanted else ""
    return (
        f"{Path(library._name).name} for {blas.core}{chosen}, on {blas.count()} threads; "
        f"{'products of float32 and float64 by MKL; ' if blas.mkl is not None else ''}"
        f"elementwise kernels on {threads} of {_cores()} cores"
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gradient_on(device: str) -> str:
    """A product, a fused chain and its gradient, beside the formula."""
    x = lucid_gpu.linspace(-1, 1, 1024, dtype=lucid_gpu.float32, device=device).reshape(32, 32)
    x.requires_grad_()
    y = lucid_gpu.sin(x) * x
    (y + x @ x.T).sum().backward()
    rows = x.detach()
    wanted = lucid_gpu.cos(rows) * rows + lucid_gpu.sin(rows) + 2 * rows.sum(0)
    error = float((x.grad - wanted).abs().max())
    if not error < 1e-4:
        raise Ill(f"a gradient on {device} is wrong by {error:.2g}", _REPORT)
    return "a fused chain, a product and their gradients are right"


_REPORT = "a bug: please report it with what this command prints"


def native_core() -> str:
    """The C file by which ops and small kernels run without the interpreter."""
    if native.core is not None:
        return "compiled: ops and small kernels run without the interpreter"
    if os.environ.get("LUCID_NATIVE_CORE") == "0":
        return "turned off by LUCID_NATIVE_CORE=0"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "not used: this Python has no GIL, on which the C file relies"
    raise _Absent(
        "the C file was not compiled, small programs are slower; with a C compiler: "
        f"{installing.reinstalling()}"
    )


def native_loops() -> str:
    """The C file by which blocks of NumPy's loops run without the interpreter."""
    if not loops.compiled():
        raise _Absent(
            "the C file was not compiled, small tensors on the CPU are slower; with a C compiler: "
            f"{installing.reinstalling()}"
        )
    if not loops.available():
        return "compiled, and turned off by LUCID_NATIVE_LOOPS=0"
    return "compiled: blocks of ufuncs run without the interpreter between them"


def compiler() -> str:
    """The C++ compiler that executes CUDA C on the host, for tests without a GPU."""
    wanted = os.environ.get("CXX") or "g++"
    path = shutil.which(wanted)
    if path is None and os.environ.get("LUCID_EXECUTOR") == "host-cuda":
        mend = "unset LUCID_EXECUTOR  # or install a compiler: apt-get install g++"
        raise Ill(f"no {wanted}, and LUCID_EXECUTOR=host-cuda asks for one", mend)
    if path is None:
        raise _Absent(f"no {wanted}; only LUCID_EXECUTOR=host-cuda needs one")
    return path


def cupy_package() -> str:
    """One cupy package, not two."""
    packages = sorted(
        f"{d.name} {d.version}"
        for d in metadata.distributions()
        if d.name and (d.name == "cupy" or d.name.startswith("cupy-cuda"))
    )
    if not packages:
        raise _Absent(
            f"CuPy is not installed; on a machine with an NVIDIA GPU: {cupy_backend.INSTALL}"
        )
    if len(packages) > 1:
        names = " ".join(f.split()[0] for f in packages)
        raise Ill(
            f"{' and '.join(packages)} are installed, and each breaks the others",
            f"python -m pip uninstall -y {names} && {cupy_backend.INSTALL}",
        )
    name, version = packages[0].split()
    if cupy_backend.too_old(version) is not None:
        raise Ill(
            f"{name} {version} is installed, and lucid_gpu needs 14 or newer",
            f"python -m pip uninstall -y {name} && {cupy_backend.INSTALL}",
        )
    return packages[0]


def nvrtc() -> str:
    """The compiler of kernels: it needs no GPU."""
    cupy_backend.import_cupy()
    from cupy_backends.cuda.libs import nvrtc as library

    try:
        major, minor = library.getVersion()
    except Exception as error:
        raise Ill(f"NVRTC cannot be loaded: {_first(error)}", cupy_backend.INSTALL) from None
    known = library.getSupportedArchs()
    return f"NVRTC {major}.{minor}, for sm_{min(known)} to sm_{max(known)}"


def headers() -> str:
    """CUDA's headers, which CuPy's own kernels include."""
    try:
        from cuda import pathfinder
    except ImportError:
        raise _Absent("cuda-pathfinder, which would find them, is not installed") from None
    folder = pathfinder.find_nvidia_header_directory("cudart")
    if folder is None:
        raise Ill("CUDA's headers are not found", f"{cupy_backend.INSTALL}  # [ctk] brings them")
    return str(folder)


def cache_folder() -> str:
    """Where CuPy keeps compiled kernels."""
    with contextlib.suppress(OSError):  # it makes the folder; what fails then is said below
        cupy_backend.import_cupy()
    folder = Path(cupy_backend.cache_folder())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Ill(
            f"{folder} cannot be written ({error.strerror}): no compiled kernel is kept",
            "export CUPY_CACHE_DIR=/a/folder/you/may/write",
        ) from None
    files = [f for f in folder.glob("**/*") if f.is_file()]
    size = sum(f.stat().st_size for f in files) / 2**20
    from lucid_gpu.launch.nvrtc import archived

    ahead = len(archived()[1])
    archive = f"; {ahead} compiled ahead in an archive" if ahead else ""
    return f"{folder}, {len(files)} kernels, {size:.1f} MiB{archive}"


def compilation() -> str:
    """One of the package's kernels through NVRTC, for the GPU there is or else sm_80."""
    cupy = cupy_backend.import_cupy()
    from cupy_backends.cuda.libs import nvrtc as library

    from lucid_gpu.launch.compiling import setting
    from lucid_gpu.launch.nvrtc import OPTIONS
    from lucid_gpu.launch.source import complete

    capability = cupy.cuda.Device().compute_capability if cupy_backend.problem() is None else "80"
    source = complete('#include "elementwise.cuh"\nextern "C" __global__ void nothing() {}\n')
    program = library.createProgram(source, "doctor.cu", [], [])
    try:
        library.compileProgram(program, [f"-arch=sm_{capability}", *OPTIONS])
    except library.NVRTCError:
        log = library.getProgramLog(program).strip("\0").strip().splitlines()
        raise Ill(f"NVRTC refuses sm_{capability}: {log[0] if log else ''}", _NEWER) from None
    finally:
        library.destroyProgram(program)
    waits = "while a program waits" if setting.mode == "wait" else "in the background"
    return f"kernels compile for sm_{capability}, fused ones {waits} (LUCID_COMPILE)"


_NEWER = "python -m pip uninstall -y cupy-cuda12x && python -m pip install 'cupy-cuda13x[ctk]>=14'"


def driver() -> str:
    """The driver and its GPUs."""
    missing = cupy_backend.problem()
    if missing is not None:
        if missing.startswith(GPU_MISSING):
            raise _Absent(missing)
        raise Ill(*missing.partition("; ")[::2])
    runtime = cupy_backend.import_cupy().cuda.runtime
    supported, used = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if supported // 1000 < used // 1000:
        raise Ill(
            f"the driver supports CUDA {_dotted(supported)}, CuPy uses {_dotted(used)}",
            "install a newer driver, or the cupy package of the driver's CUDA version",
        )
    return f"the driver supports CUDA {_dotted(supported)}; CuPy uses {_dotted(used)}"


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def gpus() -> str:
    """Every GPU with its memory."""
    from lucid_gpu import cuda

    described = []
    for index in range(cuda.device_count()):
        figures = cuda.get_device_properties(index)
        free, total = cuda.mem_get_info(index)
        described.append(
            f"cuda:{index} {figures.name}, sm_{figures.major}{figures.minor}, "
            f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
        )
    return "; ".join(described)


def _first(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cudnn() -> str:
    """cuDNN, where it is installed, computes a convolution and its gradients rightly."""
    settings = lucid_gpu.backends.cudnn
    if not settings.is_available():
        raise _Absent(
            f"cuDNN is not installed, convolutions are matrix products; {cudnn_package.install()}"
        )
    by_cudnn = _convolution()
    with settings.flags(enabled=False):
        by_products = _convolution()
    error = max(float((a - b).abs().max()) for a, b in zip(by_cudnn, by_products, strict=True))
    if not error < 1e-3:
        raise Ill(f"a convolution or its gradient is wrong by {error:.2g}", _REPORT)
    return f"cuDNN {settings.version()}: a convolution and its gradients are right"


def _convolution() -> tuple[Any, ...]:
    x = lucid_gpu.linspace(-1, 1, 576, device="cuda").reshape(1, 4, 12, 12).requires_grad_()
    w = lucid_gpu.linspace(-1, 1, 144, device="cuda").reshape(4, 4, 3, 3).requires_grad_()
    y = lucid_gpu.nn.functional.conv2d(x, w, padding=1)
    return y.detach(), *lucid_gpu.autograd.grad(y.sin().sum(), (x, w))


Check = tuple[str, Callable[[], str]]

ALWAYS: tuple[Check, ...] = (
    ("versions", versions),
    ("BLAS and threads", matrix_products),
    ("native core", native_core),
    ("native loops", native_loops),
    ("gradient, cpu", lambda: gradient_on("cpu")),
    ("C++ compiler", compiler),
)
# Nothing of a list can be well after one of ENDING is not.
COMPILING: tuple[Check, ...] = (
    ("CuPy", cupy_package),
    ("NVRTC", nvrtc),
    ("CUDA headers", headers),
    ("kernel cache", cache_folder),
    ("compilation", compilation),
)
ENDING = ("CuPy", "kernel cache", "driver")  # CuPy makes that folder when it is imported
COMPUTING: tuple[Check, ...] = (
    ("driver", driver),
    ("GPUs", gpus),
    ("gradient, cuda", lambda: gradient_on("cuda")),
    ("convolution", cudnn),
)
MAY_BE_MISSING = ("CUDA headers", "convolution")


def examine(device: str | None = None) -> Iterator[Line]:
    """Run the checks, one after the other.

    Parameters
    ----------
    device : {"cpu", "cuda"}, optional
        ``"cpu"`` leaves out those of a GPU; with ``"cuda"``, a GPU that is missing is a failure.

    Yields
    ------
    Line

    Raises
    ------
    ValueError
        For another device.
    """
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device must be 'cpu' or 'cuda', or left out; got {device!r}")
    for name, check in ALWAYS:
        yield _line(name, check, False)
    for chain in () if device == "cpu" else (COMPILING, COMPUTING):
        for name, check in chain:
            line = _line(name, check, device == "cuda" and name not in MAY_BE_MISSING)
            yield line
            if line.state != "ok" and name in ENDING:
                break


def _line(name: str, check: Callable[[], str], needed: bool) -> Line:
    line = _checked(name, check, needed)
    return line._replace(
        found=line.found.replace("python -m", f"{_python()} -m"),
        mend=line.mend.replace("python -m", f"{_python()} -m"),
    )


def _python() -> str:
    """What a shell calls this interpreter, so that a command installs where it is missing."""
    return "python" if shutil.which("python") == sys.executable else shlex.quote(sys.executable)


def _checked(name: str, check: Callable[[], str], needed: bool) -> Line:
    try:
        return Line(name, "ok", check())
    except _Absent as absent:
        finding, _, mend = str(absent).partition("; ")
        return Line(name, "failed", finding, mend) if needed else Line(name, "none", str(absent))
    except Ill as ill:
        return Line(name, "failed", ill.finding, ill.mend)
    except Exception as error:  # what no check foresaw is a finding, too
        finding, _, mend = _first(error).partition("; ")  # the package's errors say what mends them
        return Line(name, "failed", f"{type(error).__name__}: {finding}", mend or _REPORT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines; 1 when one failed."""
    flags = argparse.ArgumentParser(prog="python -m lucid_gpu.doctor", description=__doc__)
    flags.add_argument(
        "--device", choices=("cpu", "cuda"), help="leave the GPU out, or insist on it"
    )
    flags.add_argument("--json", action="store_true", help="a JSON list of the lines")
    options = flags.parse_args(arguments)
    failed = False
    lines: list[dict[str, Any]] = []
    for line in examine(options.device):
        failed |= line.state == "failed"
        lines.append(line._asdict())
        if not options.json:
            print(f"{line.state:<7} {line.name:<17} {line.found}", flush=True)
            if line.mend:
                print(f"{'':<7} {'':<17} -> {line.mend}", flush=True)
    if options.json:
        print(json.dumps(lines, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
