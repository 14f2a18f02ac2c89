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
for arch in ("80", "89"):
    precompile.main(["--arch", arch, "--missing", "--cache", sys.argv[1]])
os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
print(precompile.main(["--arch", "80"]))
"""

# What a program does on GPUs of the compute capabilities argv[1:], but for loading what it found.
AT_RUN_TIME = """
import sys
from types import SimpleNamespace as Namespace
import cupy
from lucid_gpu.kernels import attention
from lucid_gpu.launch import cuda, nvrtc
from lucid_gpu.launch.compiling import Text

class Compiled(Exception):
    pass

def refuse(*_):
    raise Compiled

class Module:
    def __init__(self, path):
        assert open(path, "rb").read(4) == b"\\x7fELF"

    def get_function(self, name):
        return Namespace(name=name)

nvrtc.compiled = refuse
cuda.Function = lambda raw, name: raw
kernel, template = attention.INSTANCES[0]
instance = kernel.instance(**template)
text = Text(instance.name, instance.source, False)
for capability in sys.argv[1:]:
    gpu = Namespace(
        cuda=Namespace(Device=lambda index: Namespace(compute_capability=capability)),
        RawModule=Module,
    )
    launcher = Namespace(xp=gpu, index=0, failures=())
    try:
        assert cuda.CudaLauncher.build(launcher, text).name == text.name
        print(capability, "found")
    except Compiled:
        print(capability, "compiled")
"""


# The same two kernels as an archive, argv[2], and one that a program is told of wrongly.
ARCHIVED = """
import sys
from itertools import islice
from lucid_gpu import precompile
every = precompile.sources
precompile.sources = lambda: islice(every(), 2)
precompile.main(["--arch", "80", "--cache", sys.argv[1], "--archive", sys.argv[2]])
"""


def ran(script: str, *arguments: str, cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A fresh process, in which CuPy is the real one also where tests have a stand-in."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=TREE,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cache), "CUPY_CACHE_DIR": str(cache), **more},
        capture_output=True,
        text=True,
    )


def test_what_is_compiled_ahead_is_found_and_nothing_else(tmp_path: Path) -> None:
    wanted = ("80,90", "90 80", "8", "80,ninety", " ")
    compiling.module()  # or a skip
    ahead = ran(AHEAD, str(tmp_path), *wanted, cache=tmp_path)
    first, status, again, status_again, *refused, there, nothing, last = ahead.stdout.splitlines()
    assert there.startswith("2 of 2 kernels for sm_80 by this NVRTC (")
    assert nothing.startswith("0 of 2 kernels for sm_89 by this NVRTC (")
    assert ": nothing of the 4 files there fits, they were made by another NVRTC" in nothing
    refused.append(last)
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


def test_an_archive_serves_gpus_of_its_generations(tmp_path: Path) -> None:
    compiling.module()  # or a skip
    archive, empty = tmp_path / "kernels.zip", tmp_path / "empty"
    said = ran(ARCHIVED, str(tmp_path), str(archive), cache=tmp_path).stdout
    assert f"; {archive} holds them in " in said
    empty.mkdir()
    found = ran(AT_RUN_TIME, "80", "86", "75", "90", cache=empty, LUCID_KERNELS=str(archive))
    assert found.stdout.splitlines() == ["80 found", "86 found", "75 compiled", "90 compiled"]
    wrong = ran(AT_RUN_TIME, "80", cache=tmp_path / "other", LUCID_KERNELS=str(tmp_path))
    assert "ValueError: LUCID_KERNELS is the archive that python -m" in wrong.stderr
