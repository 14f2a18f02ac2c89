"""What kernels are compiled with: IEEE arithmetic, once, into one file each."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.fusion.op_kernels import table_kernels
from lucid_gpu.launch import nvrtc
from lucid_gpu.launch.compile_errors import CompileError
from tests.kernels import compiling

SOURCE = 'extern "C" __global__ void root(float* x) { *x = %s(*x); }\n'
IN_FTZ = re.compile(r"^\s*(\S*\.ftz\S*)", re.MULTILINE)
# In CUDA's own functions (exp, tanh, asin ...), on numbers that are never denormal.
INSIDE = {f"{f}.approx.ftz.f32" for f in ("ex2", "lg2", "rcp", "rsqrt")} | {"rcp.approx.ftz.f64"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real compiler, and an empty folder for what it makes."""
    if getattr(compiling.module(), "__file__", "").endswith(".py"):
        pytest.skip("the stand-in's NVRTC makes no code")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_the_last_of_two_options_counts_and_cupys_would_be_the_last(folder: Path) -> None:
    """Why `RawKernel` is not given the source."""
    text = SOURCE % "sqrtf"
    assert "sqrt.rn.f32" in compiling.ptx(text, 90)
    assert "-ftz=false" in nvrtc.OPTIONS and "-ftz=false" in nvrtc.GENERATED
    library = compiling.module()
    program = library.createProgram(text, "k.cu", [], [])
    library.compileProgram(program, [*nvrtc.OPTIONS, "-arch=compute_90", "-ftz=true"])
    assert b"sqrt.rn.ftz.f32" in library.getPTX(program)


def test_arithmetic_roots_and_logarithms_flush_nothing(folder: Path) -> None:
    ops = "add mul div reciprocal sqrt rsqrt log log2 log1p ne"
    wanted = {f"lucid_{op}_kernel" for op in ops.split()}
    for text in table_kernels():
        if text.name in wanted and "float" in text.source:
            body = compiling.ptx(text.source, 90, nvrtc.GENERATED)
            assert not IN_FTZ.findall(body), text.name
            wanted.discard(text.name)
    assert wanted == set()


@pytest.mark.slow
def test_no_kernel_flushes_denormal_numbers() -> None:
    """Hand-written kernels and those of single ops; generated ones are made of the same ops."""
    if getattr(compiling.module(), "__file__", "").endswith(".py"):
        pytest.skip("the stand-in's NVRTC makes no code")
    found: Counter[str] = Counter()
    seen = set()
    for instance in compiling.instances():
        if (instance.kernel.name, str(instance.template.get("T"))) not in seen:
            seen.add((instance.kernel.name, str(instance.template.get("T"))))
            source = instance.kernel.instance(**instance.template).source
            found.update(IN_FTZ.findall(compiling.ptx(source, 90)))
    for text in table_kernels():
        found.update(IN_FTZ.findall(compiling.ptx(text.source, 90, nvrtc.GENERATED)))
    assert set(found) <= INSIDE, found


def test_a_kernel_is_compiled_once(folder: Path) -> None:
    text = SOURCE % "sqrtf"
    path = nvrtc.kept(text, "root", nvrtc.OPTIONS, 90)
    assert path.parent == folder and path.read_bytes().startswith(b"\x7fELF")
    made = path.stat().st_mtime_ns
    assert nvrtc.kept(text, "root", nvrtc.OPTIONS, 90) == path
    assert path.stat().st_mtime_ns == made
    others = [
        nvrtc.kept(text, "root", nvrtc.GENERATED, 90),
        nvrtc.kept(text, "root", nvrtc.OPTIONS, 80),
        nvrtc.kept(text + "\n", "root", nvrtc.OPTIONS, 90),
    ]
    assert len({path, *others}) == 4 == len(list(folder.iterdir()))


def test_cudas_headers_are_found(folder: Path) -> None:
    text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + SOURCE % "sqrtf"
    assert nvrtc.kept(text, "root", nvrtc.OPTIONS, 80).exists()


def test_a_refused_source_leaves_no_file(folder: Path) -> None:
    with pytest.raises(CompileError, match="NVRTC refused the kernel root"):
        nvrtc.kept(SOURCE % "squareroot", "root", nvrtc.OPTIONS, 90)
    assert list(folder.iterdir()) == []


def test_a_gpu_newer_than_the_compiler(folder: Path) -> None:
    newest = max(compiling.module().getSupportedArchs())
    assert nvrtc.architecture_for(90) == 90 and nvrtc.architecture_for(10_000) == newest


@pytest.mark.parametrize("in_memory", ["0", "1"])
def test_kernels_on_disk_and_in_memory(
    device: str, in_memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        pytest.skip("NVRTC compiles for GPUs")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", in_memory)
    x = lucid_gpu.tensor([4.0], device=device)
    lucid_gpu.cuda.kernel(
        "__global__ void root(float* x, int n) { if (threadIdx.x < n) *x = sqrtf(*x); }",
        "root(float* x, int n)",
    )(x, 1)
    assert x.item() == 2
    assert len(list(tmp_path.iterdir())) == (in_memory == "0")


def test_denormal_numbers_are_kept(device: str) -> None:
    x = np.array([1e-40, -3e-42, 1.5e-45], np.float32)
    ops: dict[str, Any] = {
        "sqrt": lambda m, t: m.sqrt(abs(t)),
        "log": lambda m, t: m.log(abs(t)),
        "nonzero": lambda m, t: t != 0,
        "product": lambda m, t: t * 0.5,
        "quotient": lambda m, t: t / 2**10,
        "sum": lambda m, t: t.sum(),
        "mean of rows": lambda m, t: t.reshape(1, 3).mean(1),
    }
    for name, op in ops.items():
        found = op(lucid_gpu, lucid_gpu.tensor(x, device=device)).cpu().numpy()
        np.testing.assert_allclose(found, op(np, x), rtol=1e-6, atol=2e-45, err_msg=name)


def test_a_file_is_found_from_another_folder_but_not_by_another_compiler(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache is filled on one machine for another, whose packages lie elsewhere."""
    text = SOURCE % "sqrtf"
    here = nvrtc.cache_path(text, nvrtc.OPTIONS, 90)
    told = nvrtc._full_options(nvrtc.OPTIONS, nvrtc.target(text, 90))
    includes = next(o[2:] for o in told if Path(o[2:], "cuda_fp16.h").exists())
    moved = folder / "elsewhere"
    moved.mkdir()
    for name in nvrtc.HEADERS:
        (moved / name).write_bytes(Path(includes, name).read_bytes())
    elsewhere = tuple(o for o in told if not o.startswith("-I")) + (f"-I{moved}",)
    monkeypatch.setattr(nvrtc, "_full_options", lambda options, architecture: elsewhere)
    nvrtc._compiler.cache_clear()
    assert nvrtc.cache_path(text, nvrtc.OPTIONS, 90) == here
    nvrtc._compiler.cache_clear()
    (moved / "cuda_fp16.h").write_text("// of another CUDA")
    assert nvrtc.cache_path(text, nvrtc.OPTIONS, 90) != here
    nvrtc._compiler.cache_clear()
