"""What of `make gpu` can be tried without a GPU: limits, parsing, the table, the plain refusal."""

import sys
import time

import pytest

from bench import gpu, gpu_check


def test_a_part_that_hangs_is_ended_with_its_children():
    code = "import subprocess, sys; print('begun', flush=True); subprocess.run(['sleep', '60'])"
    start = time.monotonic()
    ended = gpu.run([sys.executable, "-c", code], 1.0)
    assert time.monotonic() - start < 10
    assert ended.code is None
    assert ended.figures()["verdict"] == "out of time"
    assert "begun" in ended.output


def test_a_part_that_fails_keeps_its_last_words():
    figures = gpu.run([sys.executable, "-c", "raise SystemExit('no luck')"], 30).figures()
    assert figures["verdict"] == "failed"
    assert "no luck" in figures["output"]


def test_junit_is_counted(tmp_path):
    path = tmp_path / "tests.xml"
    path.write_text(
        """<testsuites><testsuite>
        <testcase classname="a" name="good"/>
        <testcase classname="a" name="bad"><failure message="x"/></testcase>
        <testcase classname="b" name="out"><skipped message="no torch"/></testcase>
        </testsuite></testsuites>"""
    )
    assert gpu.read_junit(path) == {
        "counts": {"passed": 1, "failed": 1, "skipped": 1},
        "failed_tests": ["a::bad"],
        "skips": {"no torch": 1},
    }


def document():
    figures = {"median": 2e-4, "low": 2e-4, "high": 2e-4}
    row = {"name": "chain-2^24", "title": "chain", "peers": {"lucid_gpu": figures}, "to_eager": 0.1}
    return {
        "created": "2000-01-01T00:00:00",
        "gpu": {
            "name": "A GPU",
            "compute_capability": "9.0",
            "driver": 1,
            "runtime": 1,
            "cupy": "14",
        },
        "machine": {"python": "3", "versions": {"numpy": "2", "torch": None}, "commit": "abc"},
        "parts": {
            "copy bandwidth": {"verdict": "passed", "bytes_a_second": {"1": 4e12}, "seconds": 1},
            "chain beside torch": {"verdict": "passed", "cases": {"chain-2^24": row}},
        },
    }


def test_the_table_relates_the_chain_to_a_copy(tmp_path):
    gpu.write(document(), tmp_path / "results" / "a-gpu")
    text = (tmp_path / "results" / "a-gpu.md").read_text()
    # Six arrays of 64 MiB in 0.2 ms are 2.01 TB/s, half of the copy's 4.
    assert "| chain | 200 us (200 to 200) |  |  | 0.1 | 50% |" in text
    assert (tmp_path / "results" / "a-gpu.json").exists()


def test_without_a_gpu_it_says_so_and_writes_nothing(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "installed", lambda module: False)
    assert gpu.main() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "CuPy is not installed" in error


@pytest.mark.parametrize("home", ["", "/nonexistent"])
def test_an_unwritable_home_gets_a_cache_folder(monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    assert gpu.gpu_environment()["CUPY_CACHE_DIR"]


def test_the_comparison_with_the_cpu_runs(capsys):
    assert gpu_check.main("cpu") == 0, capsys.readouterr().out
    assert "0 failed" in capsys.readouterr().out
