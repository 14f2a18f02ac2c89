"""What the doctor says of a machine, well and ill."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lucid_gpu import __main__ as commands
from lucid_gpu import doctor
from lucid_gpu.devices import cupy_backend

PACKAGE = Path(doctor.__file__).parent
HAS_GPU = cupy_backend.problem() is None


def line_of(name, device=None):
    return next(line for line in doctor.examine(device) if line.name == name)


def test_the_cpu_is_well_and_nothing_of_a_gpu_is_asked():
    lines = list(doctor.examine("cpu"))
    assert [line.name for line in lines] == [name for name, _ in doctor.ALWAYS]
    assert not [line for line in lines if line.state == "failed"]
    assert line_of("gradient, cpu", "cpu").state == "ok"


def test_kernels_that_the_environment_chose_are_told(monkeypatch):
    if doctor.blas.library is None:
        pytest.skip("NumPy has no OpenBLAS of its own")
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    assert "OPENBLAS" not in line_of("BLAS and threads", "cpu").found
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    text = line_of("BLAS and threads", "cpu").found
    assert f"for {doctor.blas.core}, told by OPENBLAS_CORETYPE=Haswell" in text


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_a_missing_gpu_fails_only_where_it_is_asked_for(capsys):
    assert doctor.main([]) == 0
    assert "none " in capsys.readouterr().out
    assert doctor.main(["--device", "cuda"]) == 1
    assert re.search(r"failed .*\n +-> .", capsys.readouterr().out)


def test_lines_as_json(capsys):
    assert doctor.main(["--json", "--device", "cpu"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert {"name", "state", "found", "mend"} == set(lines[0])


def test_another_device_is_refused():
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda', or left out; got 'tpu'"):
        next(doctor.examine("tpu"))


def test_two_cupys_or_an_old_one_are_refused(monkeypatch):
    here = sys.executable
    monkeypatch.setattr(doctor.shutil, "which", lambda name: here)
    both = [SimpleNamespace(name=f"cupy-cuda{v}x", version="14.2.0") for v in (12, 13)]
    monkeypatch.setattr(doctor.metadata, "distributions", lambda: both)
    line = line_of("CuPy")
    assert line.state == "failed" and "each breaks the others" in line.found
    assert line.mend.startswith("python -m pip uninstall -y cupy-cuda12x cupy-cuda13x && ")
    monkeypatch.setattr(doctor.sys, "executable", "/some where/python3")
    assert line_of("CuPy").mend.count("'/some where/python3' -m pip ") == 2
    old = [SimpleNamespace(name="cupy-cuda12x", version="13.6.0")]
    monkeypatch.setattr(doctor.metadata, "distributions", lambda: old)
    line = line_of("CuPy")
    assert line.state == "failed" and "13.6.0 is installed, and lucid_gpu needs 14" in line.found
    assert "-m pip uninstall -y cupy-cuda12x && " in line.mend
    monkeypatch.setattr(doctor.metadata, "distributions", list)
    assert line_of("CuPy").state == "none" and line_of("CuPy", "cuda").mend


def test_a_wrong_gradient_is_found(monkeypatch):
    import lucid_gpu

    monkeypatch.setattr(lucid_gpu, "cos", lucid_gpu.sin)
    line = line_of("gradient, cpu", "cpu")
    assert line.state == "failed" and "a gradient on cpu is wrong by" in line.found


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    pytest.importorskip("cupy", reason="CuPy is missing: python -m pip install '.[test]'")
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file" / "folder"))
    line = line_of("kernel cache")
    assert line.state == "failed" and f"{tmp_path}/file/folder cannot be written" in line.found
    assert line.mend == "export CUPY_CACHE_DIR=/a/folder/you/may/write"


def test_old_packages_are_named(monkeypatch):
    wanted = (PACKAGE.parent / "pyproject.toml").read_text("utf-8")
    for name, least in doctor.NEEDS.items():
        assert f'"{name}>={least}"' in wanted
    monkeypatch.setattr(doctor.shutil, "which", lambda name: sys.executable)
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "1.26.4")
    line = line_of("versions", "cpu")
    assert line.found == "numpy 1.26.4 is installed, and lucid_gpu wants 2.0 or newer"
    assert line.mend == "python -m pip install --upgrade 'numpy>=2.0'"


def test_a_compiler_that_is_asked_for_and_missing_is_a_failure(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.delenv("LUCID_EXECUTOR", raising=False)
    assert line_of("C++ compiler", "cpu").state == "none"
    monkeypatch.setenv("LUCID_EXECUTOR", "host-cuda")
    line = line_of("C++ compiler", "cpu")
    assert line.state == "failed" and line.mend.startswith("unset LUCID_EXECUTOR")


def test_what_no_check_foresaw_is_a_finding(monkeypatch):
    def broken():
        raise OSError("the disk is gone")

    monkeypatch.setattr(doctor, "ALWAYS", (("disk", broken),))
    (line,) = doctor.examine("cpu")
    assert line.state == "failed" and line.found == "OSError: the disk is gone"


def test_every_variable_that_is_read_is_listed():
    read = set()
    for path in PACKAGE.rglob("*.py"):
        read |= set(re.findall(r"environ[^\n]*?[\"'](LUCID_\w+)", path.read_text("utf-8")))
    assert read == set(commands.SETTINGS)


@pytest.mark.parametrize("module", ["lucid_gpu", "lucid_gpu.doctor"])
def test_it_runs_as_a_command(module):
    more = ["--device", "cpu"] if module.endswith("doctor") else []
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-W", "error", "-m", module, *more]
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr
    assert "lucid_gpu" in ran.stdout


def test_a_gradient_is_right_on_every_device(device):
    assert doctor.gradient_on(device).endswith("are right")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("doctor", "python -m lucid_gpu.doctor"), ("precompile", "python -m lucid_gpu.precompile")],
)
def test_a_word_that_is_no_command_leads_to_one(word, meant, capsys):
    assert commands.main([word]) == 2
    assert capsys.readouterr().err == f"lucid_gpu: no argument {word!r} is taken; say {meant}\n"
    assert commands.main(["tarin"]) == 2 and "lists the commands" in capsys.readouterr().err
    assert commands.main(["--help"]) == 0
