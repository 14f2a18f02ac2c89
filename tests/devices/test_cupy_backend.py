"""The GPU's backend where there is no GPU: what it says, and what it prepares."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import lucid_gpu
from lucid_gpu.devices import cupy_backend
from lucid_gpu.devices.copies import row_major

without_gpu = pytest.mark.skipif(lucid_gpu.cuda.is_available(), reason="there is a GPU")


@without_gpu
def test_a_cuda_tensor_without_a_gpu_says_what_is_missing():
    with pytest.raises(
        RuntimeError, match=r"no cuda device can be used: .*(nvidia-smi|pip install)"
    ):
        lucid_gpu.zeros(2, device="cuda")


def test_without_cupy_the_install_command_is_named(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "cupy" else real(name)
    )
    assert "python -m pip install 'cupy-cuda12x[ctk]>=14'" in cupy_backend.problem()
    assert not lucid_gpu.cuda.is_available()


def test_without_a_driver_nvidia_smi_is_named(monkeypatch):
    pytest.importorskip("cupy")
    monkeypatch.setattr(cupy_backend, "_has_driver", lambda: False)
    assert "no NVIDIA driver" in cupy_backend.problem() and "nvidia-smi" in cupy_backend.problem()


def test_an_older_cupy_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(cupy_backend, "_has_driver", lambda: True)
    monkeypatch.setattr(cupy_backend, "import_cupy", lambda: SimpleNamespace(__version__="13.6.0"))
    assert cupy_backend.problem().startswith("CuPy 13.6.0 is installed, and lucid_gpu needs 14")
    with pytest.raises(RuntimeError, match="no cuda device can be used: CuPy 13.6.0"):
        cupy_backend.CupyBackend()


@without_gpu
def test_a_driver_without_a_gpu_says_what_cupy_said(monkeypatch):
    pytest.importorskip("cupy")
    monkeypatch.setattr(cupy_backend, "_has_driver", lambda: True)
    assert "CuPy cannot use the GPU (cuda" in cupy_backend.problem()


@without_gpu
def test_lucid_gpu_cuda_is_harmless():
    assert lucid_gpu.cuda.device_count() == 0
    assert lucid_gpu.cuda.memory_allocated() == 0 == lucid_gpu.cuda.memory_reserved()
    lucid_gpu.cuda.empty_cache()
    for function in (lucid_gpu.cuda.synchronize, lucid_gpu.cuda.get_device_name):
        with pytest.raises(RuntimeError, match="no cuda device can be used"):
            function()


def _python(code, **environment):
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_asking_for_a_gpu_imports_no_cupy_where_there_is_no_driver():
    code = "import sys, lucid_gpu; print(lucid_gpu.cuda.is_available(), 'cupy' in sys.modules)"
    available, imported = _python(code)
    assert available == imported


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="of POSIX systems")
def test_cupy_is_imported_where_home_cannot_be_written(tmp_path):
    pytest.importorskip("cupy")
    (tmp_path / "file").write_text("")  # root could write a folder whatever its mode
    code = (
        "import os; from lucid_gpu.devices.cupy_backend import import_cupy; import_cupy(); "
        "print(os.environ['CUPY_CACHE_DIR'])"
    )
    environment = {"HOME": str(tmp_path / "file")}
    if "CUPY_CACHE_DIR" in os.environ:
        pytest.skip("CUPY_CACHE_DIR is set")
    (folder,) = _python(code, **environment)
    assert "lucid_gpu-cupy" in folder


def test_a_pool_of_no_number_of_bytes_is_named():
    with pytest.raises(AssertionError, match="LUCID_POOL_BYTES is a number of bytes; got '2GB'"):
        _python("import lucid_gpu", LUCID_POOL_BYTES="2GB")


def test_arrays_in_rows_are_themselves_and_others_are_copied(device: str) -> None:
    whole, number = (lucid_gpu.zeros(s, device=device).array for s in ((2, 3), ()))
    same, copied, alone = map(row_major, (whole, whole.T, number))
    assert same is whole and alone is number
    assert copied.flags.c_contiguous and copied.shape == (3, 2)


def test_a_device_is_the_current_one_unless_another_is(device: str) -> None:
    from lucid_gpu.devices import backend

    here = backend(lucid_gpu.device(device))
    assert here.is_current(here.current_index())
