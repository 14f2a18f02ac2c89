"""Every case of `make gpu` runs, at toy sizes, and gives torch's results."""

from __future__ import annotations

import functools
import json
import math

import pytest

from bench import gpu_cases, gpu_report, gpu_worker
from bench.gpu_cases import CASES

(OURS, TORCH) = (peer for peer in gpu_worker.PEERS if peer.name in ("lucid_gpu", "torch-eager"))
PAIRS = [(case, dtype) for case in CASES for dtype in case.dtypes]
NAMES = [f"{case.name}-{dtype}" for case, dtype in PAIRS]


@functools.cache
def torchs(name, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the work is tiny, and a team of threads is slow to wake
    (case,) = [case for case in CASES if case.name == name]
    figures = gpu_worker.measure(TORCH, case, dtype, "cpu", 1, toy=True)
    torch.set_num_threads(threads)
    return figures["sample"]


@pytest.mark.parametrize(("case", "dtype"), PAIRS, ids=NAMES)
def test_a_case_gives_torchs_result(case, dtype, device):
    figures = gpu_worker.measure(OURS, case, dtype, device, 1, toy=True)
    assert figures["seconds"] > 0 and figures["sets"] == 2
    if not case.random:
        apart = gpu_worker.difference(figures["sample"], torchs(case.name, dtype))
        assert apart <= gpu_report.TOLERANCES[dtype]


def test_a_worker_says_what_failed_and_goes_on(capsys, monkeypatch):
    def fail(kit):
        raise ValueError("no luck")

    broken = gpu_cases.Case("broken", "broken", fail, (1,), (1,), dtypes=("float32",))
    monkeypatch.setattr(gpu_worker, "CASES", (broken, CASES[0]))
    assert gpu_worker.main(["lucid_gpu", "--device", "cpu", "--rounds", "1", "--toy"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("failed") for line in lines] == ["ValueError: no luck", None, None]
    assert gpu_worker.main(["lucid_gpu", "--device", "cpu", "--seconds", "-1"]) == 0
    assert capsys.readouterr().out == ""


def test_inputs_are_larger_than_a_cache_together():
    for case in CASES:
        if case.least is not None:
            kit = gpu_cases.Kit(None, "cuda", case.dtypes[0], case.size, 1)
            sets = gpu_worker.sets_of(case, kit)
            assert 2 <= sets <= gpu_worker.MOST_SETS
            assert sets * case.least(kit) >= gpu_worker.ROTATED_BYTES


@pytest.mark.parametrize(
    ("found", "wanted", "apart"),
    [
        ([[3.0, 4.0]], [[3.0, 4.0]], 0.0),
        ([[3.0, 4.0]], [[0.0, 4.0]], 0.75),
        ([[1.0]], [[]], math.inf),
    ],
)
def test_difference_is_relative(found, wanted, apart):
    assert gpu_worker.difference(found, wanted) == apart


def test_a_result_that_is_no_number_is_infinitely_far():
    assert gpu_worker.difference([[math.nan]], [[1.0]]) == math.inf


def test_steps_of_other_peers_are_cases():
    names = {case.name for case in CASES}
    jax = pytest.importorskip("bench.gpu_jax", reason="JAX is not installed", exc_type=ImportError)
    assert set(jax.STEPS) <= names
    triton = pytest.importorskip(
        "bench.gpu_triton", reason="Triton is not installed", exc_type=ImportError
    )
    assert set(triton.STEPS) <= names
