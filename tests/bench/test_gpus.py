"""`make gpus` and the NCCL part of `make gpu`, tried over the stand-in for CuPy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import gpu_nccl, gpus
from lucid_gpu.devices import cupy_backend
from tests.distributed.processes import ROOT, ended, mpi, run


def test_one_rank_over_the_standin() -> None:
    standin = str(ROOT / "tests" / "standin" / "run.py")
    said = run([sys.executable, standin, "-m", "bench.gpu_nccl", "--toy"])
    assert said.count(": passed") == len(gpu_nccl.TYPES) + 4 and "failed" not in said


@pytest.mark.slow
@mpi
def test_several_over_the_standin(tmp_path: Path) -> None:
    results = tmp_path / "gpus.jsonl"
    command = [sys.executable, str(ROOT / "bench" / "gpus.py"), "--rehearse", "--results"]
    status, said = ended([*command, str(results)], 280)
    assert status == 0, said
    lines = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    assert len(lines) == 13 and not any(line["failed"] for line in lines)
    assert "a rank that does not come: passed" in said and "no figure here is one of" in said


def test_too_few_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    if cupy_backend.problem() is None:
        pytest.skip("there is a GPU")
    assert gpus.main([]) == 2
    assert "at least two; here are 0; nothing was run" in capsys.readouterr().err
