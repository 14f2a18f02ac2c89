"""Whole loops from a fresh process: what is measured, counted and written."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import lucid_gpu
from bench import loop_report, loop_worker, loops
from bench.loop_programs import PROGRAMS
from bench.loop_report import CLASSES, TITLES
from lucid_gpu.core.program import forget
from tests.oracle import torch_module
from tests.slow import slow_but


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_gives_the_same_op_by_op(name):
    def results(steps):
        loop = PROGRAMS[name](np.random.default_rng(0), steps)(lucid_gpu)
        for i in range(steps):
            loop.step(i)
        return [np.array(r.detach().numpy()) for r in loop.results()]

    fused = results(3)
    with lucid_gpu.fusion.eager():
        plain = results(3)
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_gives_what_torch_gives(name, tmp_path):
    torch = torch_module()
    ours, theirs = (loop_worker.run(name, module.__name__, 3)[1] for module in (lucid_gpu, torch))
    np.savez(tmp_path / "ours.npz", *[np.asarray(a, np.float64) for a in ours])
    np.savez(tmp_path / "theirs.npz", *[np.asarray(a, np.float64) for a in theirs])
    assert loops.apart(tmp_path / "ours.npz", tmp_path / "theirs.npz") < 1e-4


def test_every_step_and_the_reading_are_counted_in_a_fresh_process():
    entry = loops.planned("statistics", 6)
    made = entry["made"]
    assert tuple(made["kinds"]) == ("programs", "plans", "kernels")
    assert len(made["steps"]) == 7
    assert made["steps"][0][0] > 0
    assert made["steps"][-1][1] > 0


def entry(times, steps):
    """Two rounds, and what each step made."""
    return {
        "name": "lion",
        "times": {
            peer: [dict.fromkeys(("import", "whole", "last"), t) for t in taken]
            for peer, taken in times.items()
        },
        "apart": 0.0,
        "made": {"kinds": ["programs", "plans", "kernels"], "steps": steps, "lines": {}},
    }


def test_ratios_are_those_of_the_rounds():
    found = entry({"lucid": [2.0, 9.0, 4.0], "torch": [1.0, 3.0, 4.0]}, [[0, 0, 0]])
    assert loop_report.ratio(found, "whole") == 2.0
    assert loop_report.median(found, "lucid", "last") == 4.0


def test_what_is_late_is_what_steps_after_the_third_made():
    steps = [[9, 4, 3], [2, 1, 0], [1, 0, 0], [0, 0, 0], [2, 1, 1], [7, 7, 7]]
    found = entry({"lucid": [1.0], "torch": [1.0]}, steps)
    assert loop_report.late(found, "plans") == [4]
    assert loop_report.summary(found)["late"] == {"programs": 2, "plans": 1, "kernels": 1}
    assert loop_report.summary(found)["made"] == {"programs": 14, "plans": 6, "kernels": 4}
    assert "plans: 6, 1 after step 3 (in steps 4)" in loops.told(found)


@pytest.mark.parametrize(
    "whole, last, word", [(2, 1, "aim"), (2, 1.1, "bar"), (4.1, 0.5, "missed"), (1, 3, "missed")]
)
def test_the_verdict(whole, last, word):
    assert loop_report.verdict({"whole": {"ratio": whole}, "last": {"ratio": last}}) == word


def test_a_class_of_processors_keeps_the_others_tables(tmp_path):
    path = tmp_path / "loops.json"
    settings = {"steps": 40, "rounds": 1, "threads": 2}
    row = loop_report.summary(entry({"lucid": [2.0], "torch": [1.0]}, [[1, 1, 1]] * 5))
    loop_report.keep("avx2", [row], settings, path)
    loop_report.keep("avx512", [row], settings, path)
    loop_report.keep("avx2", [{**row, "name": "adam"}], settings, path)
    kept = json.loads(path.read_text())
    assert list(kept) == ["avx512", "avx2"]
    assert [r["name"] for r in kept["avx2"]["rows"]] == ["adam", "lion"]
    assert [r["name"] for r in kept["avx512"]["rows"]] == ["lion"]
    text = path.with_suffix(".md").read_text()
    assert "| Lion | 2 s | 1 s | 2.00 | 2 s | 1 s | 2.00 | 1 | 1 | 1 | bar |" in text
    assert text.count("## ") == 2


def test_every_loop_has_a_title():
    assert list(TITLES) == list(PROGRAMS)


def test_the_variables_of_a_class_are_those_of_the_suites():
    env = loops.variables("sse", 1)
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["OPENBLAS_CORETYPE"] == "Nehalem"
    assert loops.processor() in CLASSES


def test_memory_that_grows_is_an_error(monkeypatch, capsys):
    held = {"200": 100_000_000, "1000": 104_000_000, "10000": 108_000_000}
    monkeypatch.setattr(loops, "ask", lambda *_, **__: {"resident": held})
    assert loops.grown(["lion"], 10_000, {}, kept=False) == 0
    assert "lion: 100 MB after 200, 104 MB after 1000, 108 MB after 10000; 1.08 times" in (
        capsys.readouterr().out
    )
    held["10000"] = 120_000_000
    assert loops.grown(["lion"], 10_000, {}, kept=False) == 1


def test_memory_is_read_after_the_named_steps():
    held = loop_worker.memory("statistics", 9, marks=(3, 6))["resident"]
    assert list(held) == [3, 6, 9]
    assert min(held.values()) > 10_000_000


VARYING = {"recurrence": 5, "batches": 5}  # steps of data, whose lengths and sizes come again


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_planned_after_the_third_step_nor_for_lengths_seen_before(name):
    """The rule of `docs/fusion.md`: whatever is left unread, whatever numbers change."""
    forget()
    seen = VARYING.get(name, loop_worker.WARM)
    loop = PROGRAMS[name](np.random.default_rng(0), VARYING.get(name, 10))(lucid_gpu)
    for i in range(seen):
        loop.step(i)
    with lucid_gpu.profiler.planning() as log:
        for i in range(seen, seen + 7):
            loop.step(i)
    assert (log.programs, log.plans, log.kernels) == (0, 0, 0), f"\n{log}"


@pytest.mark.skipif(shutil.which("g++") is None, reason="CUDA C on the host needs a C++ compiler")
@pytest.mark.parametrize("name", slow_but(["lion", "statistics", "langevin"], "lion"))
def test_no_cuda_kernel_is_compiled_after_the_third_step(name):
    entry = loops.planned(name, 8, LUCID_EXECUTOR="host-cuda")
    assert loop_report.count(entry, "kernels") > 0
    assert loop_report.late(entry, "kernels") == []
