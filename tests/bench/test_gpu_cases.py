"""Every case of `make gpu` runs, at toy sizes, and gives torch's results."""

from __future__ import annotations

import functools
import math

import pytest

import lucid_gpu
from bench import gpu_cases, gpu_report, gpu_worker
from bench.gpu_cases import CASES
from bench.gpu_journal import pieces, read
from bench.gpu_pieces import SOME_FAILED

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


def test_a_worker_says_what_failed_and_goes_on(tmp_path, monkeypatch):
    def fail(kit):
        raise ValueError("no luck")

    broken = gpu_cases.Case("broken", "broken", fail, (1,), (1,), dtypes=("float32",))
    monkeypatch.setattr(gpu_worker, "CASES", (broken, CASES[0]))
    path = tmp_path / "journal.gz"
    monkeypatch.setenv("LUCID_GPU_JOURNAL", str(path))
    told = ["lucid_gpu", "--device", "cpu", "--rounds", "1", "--toy"]
    assert gpu_worker.main(told) == SOME_FAILED
    found = pieces(read(path), "lucid_gpu")
    assert [e["outcome"] for e in found.values()] == ["failed", "passed", "passed"]
    assert found["broken float32"]["message"].startswith("ValueError: no luck\n")
    figures = found["negation float32"]["figures"]
    assert figures["first"] > 0 and figures["host"] >= 0 and figures["device"] is None
    done = tmp_path / "done.txt"
    done.write_text("\n".join(found))
    monkeypatch.setenv("LUCID_GPU_DONE", str(done))
    assert gpu_worker.main(told) == 0  # nothing is left to fail


def test_large_inputs_are_made_of_few_numbers_on_the_device(device, monkeypatch):
    monkeypatch.setattr(gpu_cases, "DISTINCT", 7)
    kit = gpu_cases.Kit(lucid_gpu, device, "float32", (4, 5), 1)
    values = kit.normal(4, 5).cpu().numpy().reshape(-1)
    assert values.tolist() == [values[n % 7] for n in range(20)] and len(set(values)) == 7


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


def test_cases_that_a_peer_measures_are_cases():
    names = {case.name for case in CASES}
    assert all(set(peer.cases) <= names for peer in gpu_worker.PEERS)
