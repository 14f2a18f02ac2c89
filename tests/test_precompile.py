"""Kernels compiled ahead are those that CuPy finds on a GPU, without compiling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kernels import compiling

TREE = Path(__file__).resolve().parents[1]

# Two kernels of a family, the way `main` compiles all; --arch is argv[2], argv[3] ... in turn.
AHEAD = """
import os, sys
from itertools import islice
from lucid_gpu import precompile
every = precompile.sources
precompile.sources = lambda: islice(every(), 2)
for arch in sys.argv[2:]:
    print(precompile.main(["--arch", arch, "--cache", sys.argv[1]]), flush=True)
os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
print(precompile.main(["--arch", "80"]))
"""

# What `RawKernel.kernel` does on GPUs of the compute capabilities argv[1:]. Its C code asks the
# driver which device is current, so what it calls behind that is called here with its arguments.
AT_RUN_TIME = """
import sys
from types import SimpleNamespace as Namespace
import cupy
from cupy._core import raw
from cupy.cuda import compiler, function
from lucid_gpu.kernels import attention
from lucid_gpu.launch.cuda import CudaLauncher

class Compiled(Exception):
    pass

def refuse(*_, **__):
    raise Compiled

class Module(function.Module):
    def load(self, cubin):
        assert cubin.startswith(b"\\x7fELF")

compiler._compile_using_nvrtc_no_warning = refuse
compiler.function = Namespace(Module=Module)
compiler.device = Namespace(Device=lambda: Namespace(compute_capability=capability))
for name in ("_get_arch", "_get_arch_for_options_for_nvrtc"):  # remembered by device
    setattr(compiler, name, getattr(compiler, name).__wrapped__)

kernel, template = attention.INSTANCES[0]
instance = kernel.instance(**template)
launcher = Namespace(xp=cupy, _functions={}, _function=lambda kernel, name, source: kernel)
state = CudaLauncher.compile(launcher, instance.name, instance.source, False).__getstate__()
names = "code file_path options backend translate_cucomplex enable_cooperative_groups jitify"
arguments = [state[n] for n in [*names.split(), "name_expressions"]]
for capability in sys.argv[1:]:
    try:
        raw._get_raw_module.__wrapped__(*arguments, None)
        print(capability, "found")
    except Compiled:
        print(capability, "compiled")
"""


def ran(script: str, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """A fresh process, in which CuPy is the real one also where tests have a stand-in."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=TREE,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cache), "CUPY_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
    )


def test_what_is_compiled_ahead_is_found_and_nothing_else(tmp_path: Path) -> None:
    wanted = ("80,90", "90 80", "8", "80,ninety", " ")
    compiling.module()  # or a skip
    ahead = ran(AHEAD, str(tmp_path), *wanted, cache=tmp_path)
    first, status, again, status_again, *refused = ahead.stdout.splitlines()
    assert first.startswith("4 kernels for sm_80, sm_90, 4 of them new, in "), ahead.stderr
    assert again.startswith("4 kernels for sm_80, sm_90, 0 of them new, in ")
    assert [status, status_again, *refused] == ["0", "0", "1", "1", "1", "1"]

    *lines, last = ahead.stderr.splitlines()
    assert last == ("precompile: CUPY_CACHE_IN_MEMORY keeps every kernel from the disk: unset it")
    for line, wrong in zip(lines, ("8", "ninety", "none"), strict=True):
        assert line.startswith("precompile: --arch wants numbers such as 80,90, out of ")
        assert f"; got {wrong}. A GPU's is its compute capability" in line

    found = ran(AT_RUN_TIME, "80", "90", "86", cache=tmp_path)
    assert found.stdout.splitlines() == ["80 found", "90 found", "86 compiled"], found.stderr
