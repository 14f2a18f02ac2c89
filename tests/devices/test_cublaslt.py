"""cuBLASLt's numbers are those of its header, and a program prefers it by PyTorch's names."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lucid_gpu as torch
from lucid_gpu.devices import cublaslt

HEADER = {
    "EPILOGUE_BIAS": cublaslt.BIAS,
    "EPILOGUE_BGRADB": cublaslt.SUMS,
    "MATMUL_DESC_TRANSA": cublaslt.TRANSPOSE_A,
    "MATMUL_DESC_TRANSB": cublaslt.TRANSPOSE_B,
    "MATMUL_DESC_EPILOGUE": cublaslt.EPILOGUE,
    "MATMUL_DESC_BIAS_POINTER": cublaslt.BIAS_POINTER,
    "MATMUL_PREF_MAX_WORKSPACE_BYTES": cublaslt.WORKSPACE_BYTES,
    "MATMUL_PREF_REDUCTION_SCHEME_MASK": cublaslt.REDUCTIONS,
    "MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": cublaslt.ALIGNMENT_A,
    "REDUCTION_SCHEME_COMPUTE_TYPE": cublaslt.EXACT_REDUCTIONS,
}


@pytest.fixture(scope="module")
def folder() -> Path:
    if not importlib.util.find_spec("nvidia") or not importlib.util.find_spec("nvidia.cublas"):
        pytest.skip("nvidia-cublas-cu12 is not installed: its header and library are asked here")
    import nvidia.cublas

    return Path(next(iter(nvidia.cublas.__path__)))


def test_numbers_are_the_header_s(folder: Path) -> None:
    text = (folder / "include" / "cublasLt.h").read_text()
    found = {name: re.search(rf"CUBLASLT_{name} = (\d+),", text) for name in HEADER}
    assert {name: m and int(m[1]) for name, m in found.items()} == HEADER


def test_the_library_takes_every_attribute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: descriptors are the host's."""
    (path,) = (folder / "lib").glob("libcublasLt.so.*")
    library = cublaslt.bound(ctypes.CDLL(str(path)))
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    descriptor = cublaslt._made(library.cublasLtMatmulDescCreate, 68, 0)
    wishes = cublaslt._made(library.cublasLtMatmulPreferenceCreate)
    layout = cublaslt._made(library.cublasLtMatrixLayoutCreate, 14, 64, 32, 64)
    cublaslt._set(descriptor, cublaslt.TRANSPOSE_A, ctypes.c_int32(1))
    cublaslt._set(descriptor, cublaslt.TRANSPOSE_B, ctypes.c_int32(1))
    for epilogue in (cublaslt.BIAS, cublaslt.SUMS):
        cublaslt._set(descriptor, cublaslt.EPILOGUE, ctypes.c_uint32(epilogue))
    cublaslt._set(descriptor, cublaslt.BIAS_POINTER, ctypes.c_void_p(4096))
    cublaslt._wish(wishes, cublaslt.WORKSPACE_BYTES, ctypes.c_uint64(1 << 20))
    for attribute in (cublaslt.REDUCTIONS, *range(cublaslt.ALIGNMENT_A, cublaslt.ALIGNMENT_A + 4)):
        cublaslt._wish(wishes, attribute, ctypes.c_uint32(16))
    with pytest.raises(RuntimeError, match="SetAttribute failed with status 7"):
        cublaslt._set(descriptor, cublaslt.EPILOGUE, ctypes.c_uint64(4))
    library.cublasLtMatmulPreferenceDestroy(wishes)
    cublaslt._destroy(cublaslt.Plan(descriptor, (layout,), cublaslt.Heuristic()))
    assert ctypes.sizeof(cublaslt.Heuristic) == 96


@pytest.fixture
def default() -> Iterator[None]:
    before = cublaslt.preferred
    yield
    cublaslt.prefer(before)


def test_a_program_prefers_a_library_by_name(default: None) -> None:
    prefer = torch.backends.cuda.preferred_blas_library
    cublas = prefer("cublas")
    assert str(cublas) == "_BlasBackend.Cublas" and prefer() is cublas
    lt = prefer("cublaslt")
    assert str(lt) == "_BlasBackend.Cublaslt" and prefer() is lt is not cublas
    assert prefer("default") is cublas and prefer(lt) is lt and prefer(cublas) is cublas
    for wrong, words in (("foo", "Choose from: default, cublas"), ("ck", "AMD"), (3, "value type")):
        with pytest.raises(RuntimeError, match=words):
            prefer(wrong)
    prefer("cublaslt")  # which linear layers on a CPU do not notice
    layer, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
    assert torch.allclose(layer(x), x @ layer.weight.T + layer.bias)


def test_the_environment_prefers_it() -> None:
    program = "import lucid_gpu; print(lucid_gpu.backends.cuda.preferred_blas_library())"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_BLAS_PREFER_CUBLASLT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "_BlasBackend.Cublaslt"
