"""`make gpu` as a whole, killed in the midst and gone on with: nothing is lost."""

from __future__ import annotations

import json
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench import gpu, gpu_rehearsal
from bench.gpu_journal import note, pieces, read
from bench.gpu_results import Results

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of results, and what was wrong."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    folder = tmp_path_factory.mktemp("rehearsal")
    results = folder / "results"
    return results, gpu_rehearsal.rehearse(folder, results, [sys.executable])


def test_a_rehearsal_loses_nothing(rehearsed: tuple[Path, list[str]]) -> None:
    assert rehearsed[1] == []


def test_a_rehearsal_would_see_what_is_lost(
    rehearsed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """The same judgment on results that are spoilt by hand."""
    results = tmp_path / "results"
    results.mkdir()
    for path in rehearsed[0].iterdir():
        (results / path.name).write_bytes(path.read_bytes())
    document = json.loads((results / "gpu.json").read_text("utf-8"))
    document["parts"]["crashes"]["failed"]["piece 3"] = "no reason"
    document["parts"]["hangs"]["seconds"] = 100
    (results / "gpu.json").write_text(json.dumps(document), "utf-8")
    (results / "logs.tar").unlink()
    journal = results / "journal.jsonl.gz"
    good = next(e["piece"] for e in read(journal) if "test_good[0" in str(e["piece"]))
    note(journal, "suite", good, "began")
    (tmp_path / "work").mkdir()
    spoilt = gpu_rehearsal.Rehearsal(tmp_path / "work", results, [sys.executable], "cpu")
    parts = len(gpu_rehearsal.REHEARSED)
    wrong = " | ".join(gpu_rehearsal.problems(spoilt, [good] * 8, parts))
    for told in ("the signal", "a limit of", "no log of suite-chosen", "is forgotten", "ran again"):
        assert told in wrong, wrong


SUITE = """
import os, signal, time
import pytest
pytestmark = pytest.mark.parametrize("device", ["gpu"])

@pytest.mark.parametrize("n", range(6))
def test_one(n, device):
    if n == 2:
        os.kill(os.getpid(), signal.SIGSEGV)

def test_fails(device):
    assert device == "another"

def test_hangs(device):
    time.sleep(1000)

def test_after(device):
    pass
"""


def suite_of(folder: Path, text: str, *flags: str) -> tuple[int, dict[str, Any]]:
    """The exit status of a run of these tests, and what it found."""
    tests, results = folder / "test_here.py", folder / "results"
    tests.write_text(text)
    told = ["--results", str(results), "--device", "cpu", "--parts", "suite", *flags]
    status = gpu.main([*told, "--tests", str(tests), "--tests", "tests/ops/test_size.py"])
    return status, json.loads((results / "gpu.json").read_text("utf-8"))["parts"]["suite"]


def test_the_suite_in_one_process_goes_on_after_a_crash_and_a_hang(tmp_path: Path) -> None:
    collected = tmp_path / "test_not_even_python.py"
    collected.write_text("import nothing_of_this_name\n")
    flags = ["--workers", "0", "--test-seconds", "5", "--tests", str(collected)]
    status, found = suite_of(tmp_path, SUITE, *flags)
    failed = found["failed"]
    assert (status, found["verdict"], found["not_ended"]) == (1, "failed", [])
    assert "SIGSEGV" in failed.pop("::test_one[2-gpu]")
    assert "Timeout" in failed["::test_hangs[gpu]"] and "test_hangs" in failed["::test_hangs[gpu]"]
    del failed["::test_hangs[gpu]"]
    imported = next(name for name in failed if "not_even_python" in name)
    assert "nothing_of_this_name" in failed.pop(imported)
    assert list(failed) == ["::test_fails[gpu]"]
    assert "assert 'gpu' == 'another'" in failed["::test_fails[gpu]"]
    suite = pieces(read(tmp_path / "results" / "journal.jsonl.gz"), "suite")
    assert suite["::test_after[gpu]"]["outcome"] == "passed"
    collected.write_text("")
    text = SUITE.replace("os.kill", "print").replace("1000", "0").replace("another", "gpu")
    assert suite_of(tmp_path, text, *flags)[0] == 0  # what failed is tried again, and passes now


def test_the_suite_ends_in_good_order_when_its_time_is_up(tmp_path: Path) -> None:
    """Its junit file is written, and the next run takes the tests that are left."""
    text = """
import time, pytest
@pytest.mark.parametrize("device", ["gpu"])
@pytest.mark.parametrize("n", range(120))
def test_one(n, device):
    time.sleep(0.2)
"""
    status, found = suite_of(tmp_path, text, "--workers", "2", "--minutes", "0.15")
    assert (status, found["verdict"], found["failed"]) == (1, "out of time", {})
    with tarfile.open(tmp_path / "results" / "logs.tar") as tar:
        assert any(name.endswith(".xml.gz") for name in tar.getnames())
    journal = tmp_path / "results" / "journal.jsonl.gz"
    passed = [n for n, e in pieces(read(journal), "suite").items() if e["outcome"] == "passed"]
    assert 0 < len(passed) < 120
    status, found = suite_of(tmp_path, text, "--workers", "2", "--minutes", "3")
    assert (status, found["verdict"]) == (0, "passed")
    begun = Counter(e["piece"] for e in read(journal) if e["outcome"] == "began")
    assert all(begun[name] == 1 for name in passed)


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    first = Results(tmp_path)
    with pytest.raises(BlockingIOError):
        Results(tmp_path)
    first.close()
    Results(tmp_path).close()
