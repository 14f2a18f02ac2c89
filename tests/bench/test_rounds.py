"""The parent and its workers: answers, failures, comparison, memory."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from bench import peers
from bench.cases import CASES
from bench.peers import BASELINE, PEERS, SUBJECT, named
from bench.rounds import Worker, WorkerError, compare, difference, run_case, summary

(CHAIN,) = named(CASES, ["chain-64"], "case")
(LUCID,) = named(PEERS, [SUBJECT], "peer")


def quiet(text):
    pass


def test_a_case_is_measured():
    figures = run_case(CHAIN, [LUCID], rounds=2, round_seconds=0.005, say=quiet)[SUBJECT]
    assert "failed" not in figures
    assert len(figures["samples"]) >= 2
    assert 0 < figures["low"] <= figures["median"] <= figures["high"]


@pytest.mark.slow
def test_peers_are_compared():
    pytest.importorskip("torch", reason="the oracle: make test ORACLE=1 installs torch")
    (eager,) = named(PEERS, [BASELINE], "peer")
    figures = run_case(CHAIN, [LUCID, eager], rounds=1, round_seconds=0.005, say=quiet)
    assert "failed" not in figures[SUBJECT], figures
    assert figures[SUBJECT]["error"] < CHAIN.tolerance
    assert figures[BASELINE]["median"] > 0


def test_the_first_gradient_of_a_fresh_process():
    (case,) = named(CASES, ["first-gradient"], "case")
    figures = run_case(case, [LUCID], rounds=1)[SUBJECT]
    assert "failed" not in figures
    assert 0 < figures["median"] < 60
    broken = replace(case, program="1 / 0")
    failed = run_case(broken, [LUCID], rounds=1)[SUBJECT]["failed"]
    assert failed == "ZeroDivisionError: division by zero"


def test_a_failing_order_is_said_and_survived():
    worker = Worker(LUCID, CHAIN)
    try:
        with pytest.raises(WorkerError, match="AttributeError.*dance"):
            worker.ask("dance")
        assert "version" in worker.ask("version")
    finally:
        worker.close()


def test_a_dead_worker_is_said():
    worker = Worker(LUCID, CHAIN)
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(WorkerError, match="process ended with code -9"):
        worker.ask("version")
    worker.close()


def test_a_silent_worker_is_ended():
    worker = Worker(LUCID, CHAIN)
    with pytest.raises(WorkerError, match="no answer to 'warm'"):
        worker.ask("warm", timeout=0.01, seconds=60)
    assert worker.process.poll() is not None


def test_a_wrong_result_fails_the_peer(tmp_path):
    np.savez(tmp_path / f"{BASELINE}.npz", np.ones(3))
    np.savez(tmp_path / "good.npz", np.ones(3) + 1e-6)
    np.savez(tmp_path / "bad.npz", np.ones(3) + 1e-2)
    np.savez(tmp_path / "nan.npz", np.full(3, np.nan))
    figures = {name: {} for name in (BASELINE, "good", "bad", "nan")}
    compare(CHAIN, figures, tmp_path)
    assert "failed" not in figures["good"]
    assert "wrong result" in figures["bad"]["failed"]
    assert "wrong result" in figures["nan"]["failed"]


def test_difference_of_shapes_is_infinite():
    assert difference(np.ones(3), np.ones((3, 1))) == float("inf")
    assert difference(np.zeros(0), np.zeros(0)) == 0


def test_summary_gives_quartiles():
    figures = summary([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (figures["low"], figures["median"], figures["high"]) == (2.0, 3.0, 4.0)


def test_peak_memory_sees_what_was_freed():
    """In a process of its own: what other tests freed may lie in the heap of this one."""
    text = """if True:
        import numpy as np
        from bench.worker import reset_peak, resident
        before = reset_peak()
        np.ones(1 << 26, np.uint8)
        print(resident()["VmHWM"] - before, resident()["VmRSS"] - before)
    """
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    peak, now = (int(n) / (1 << 26) for n in found.stdout.split())
    assert 0.98 < peak < 1.1
    assert now < 0.1


def test_all_peers_run_as_on_an_older_processor(monkeypatch):
    monkeypatch.setattr(peers, "older", {"OPENBLAS_CORETYPE": "Haswell"})
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX512F")
    for peer in peers.PEERS:
        env = peers.environment(peer)
        assert env["OPENBLAS_CORETYPE"] == "Haswell"
        assert "NPY_DISABLE_CPU_FEATURES" not in env
