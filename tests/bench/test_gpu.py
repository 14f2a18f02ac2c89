"""What of `make gpu` can be tried without a GPU: limits, parsing, the table, the plain refusal."""

import json
import math
import sys
import time

import pytest

from bench import gpu, gpu_cases, gpu_check, gpu_report


def test_a_part_that_hangs_is_ended_with_its_children():
    start = time.monotonic()
    ended = gpu.run(["sh", "-c", "echo begun; sleep 200; true"], 1.0)
    assert time.monotonic() - start < 100
    assert ended.code is None
    assert ended.figures()["verdict"] == "out of time"
    assert "begun" in ended.output


def test_a_part_that_fails_keeps_its_last_words():
    figures = gpu.run([sys.executable, "-c", "raise SystemExit('no luck')"], 200).figures()
    assert figures["verdict"] == "failed"
    assert "no luck" in figures["output"]


def test_the_suite_ends_in_good_order_when_its_time_is_up(tmp_path):
    """What passed by then is counted; what takes no device is left out."""
    (tmp_path / "test_slow.py").write_text(
        "import pytest\n"
        "from bench import gpu_suite\n"
        "@pytest.mark.parametrize('device', ['cuda'])\n"
        "@pytest.mark.parametrize('n', range(9))\n"
        "def test_one(n, device):\n"
        "    if n == 3: gpu_suite._end = 0\n"
        "def test_the_same_everywhere(): pass\n"
    )
    log = tmp_path / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "bench.gpu_suite", f"--junitxml={log}"]
    ended = gpu.run([*command, str(tmp_path)], 200, LUCID_TEST_SECONDS="1000")
    assert ended.code == gpu.STOPPED and "the time for tests is up" in ended.output
    assert "1 deselected" in ended.output
    assert gpu.read_junit(log)["counts"]["passed"] == 5  # the last began as the clock was looked at


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


def document(toy=False):
    """lucid_gpu twice as fast as torch eager, at half of the copy's bandwidth."""
    count = gpu_cases.sized(CHAIN, toy)[0]
    ours, theirs = 2e-4 * count / (1 << 26), 4e-4 * count / (1 << 26)
    name = "chain-forward float32"
    return {
        "created": "2000-01-01T00:00:00",
        "toy": toy,
        "gpu": {
            "name": "A GPU",
            "compute_capability": "9.0",
            "driver": 1,
            "runtime": 1,
            "cupy": "14",
        },
        "machine": {"python": "3", "versions": {"numpy": "2", "torch": None}, "commit": "abc"},
        "parts": {
            "copy bandwidth": {"verdict": "passed", "bytes_a_second": {"1": 8.05e12}, "seconds": 1},
        },
        "benchmarks": {
            "lucid_gpu": {name: {"seconds": ours, "sample": [[1.0, 2.0]]}},
            "torch-eager": {name: {"seconds": theirs, "sample": [[1.0, 2.0]]}},
            "torch-compile": {name: {"failed": "no compiler"}},
        },
    }


(CHAIN,) = [case for case in gpu_cases.CASES if case.name == "chain-forward"]


def test_the_table_relates_a_case_to_a_copy_and_to_peers(tmp_path):
    gpu.write(document(), tmp_path / "results" / "a-gpu")
    text = (tmp_path / "results" / "a-gpu.md").read_text()
    # Three arrays of 256 MiB in 0.2 ms are 4.03 TB/s, half of the copy's 8.05.
    row = "| chain, forward | float32 | 200.0 us | 4027 | 50% |  | 0.50 | failed | under 90% |"
    assert row in text
    assert "sample" not in (tmp_path / "results" / "a-gpu.json").read_text()


def test_a_wrong_result_and_a_slow_one_are_said():
    wrong = document()
    wrong["benchmarks"]["torch-eager"]["chain-forward float32"]["sample"] = [[1.0, 2.1]]
    (row,) = gpu_report.rows(wrong)
    assert gpu_report.wrong(row) and gpu_report.verdict(row) == "wrong result"
    slow = document()
    slow["benchmarks"]["torch-eager"]["chain-forward float32"]["seconds"] = 1e-4
    (row,) = gpu_report.rows(slow)
    assert gpu_report.verdict(row) == "under 90%; behind torch-eager"
    nan = document()
    nan["benchmarks"]["lucid_gpu"]["chain-forward float32"]["sample"] = [[math.nan, 2.0]]
    assert gpu_report.wrong(gpu_report.rows(nan)[0])


def test_a_trial_says_that_it_is_one():
    text = gpu_report.markdown(document(toy=True))
    assert text.startswith("A trial of the script, at tiny sizes; no figure of a GPU.")
    assert text.rstrip().endswith("| tried |")


def test_a_workers_lines_are_read_to_where_it_was_ended():
    line = json.dumps({"case": "copy", "dtype": "float32", "seconds": 1.0})
    found = gpu.read_cases(f"a warning\n{line}\n{line[:20]}")
    assert found == {"copy float32": {"seconds": 1.0}}


def test_the_whole_command_can_be_tried_without_a_gpu(tmp_path, capsys):
    flags = ["--device", "cpu", "--rounds", "1", "--results", str(tmp_path), "--peers", "lucid_gpu"]
    cases = ["--case", "chain-backward", "--case", "launch"]
    assert gpu.main([*flags, *cases]) == 0, capsys.readouterr().out
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert [row["case"] for row in found["rows"]] == ["chain-backward", "chain-backward", "launch"]
    assert all(row["seconds"] > 0 for row in found["rows"])
    assert found["parts"]["benchmarks: lucid_gpu"]["summary"] == "3 of 3 measured"
    (text,) = [p.read_text() for p in tmp_path.glob("*.md")]
    assert text.count("| tried |") == 3


def test_without_a_gpu_it_says_so_and_writes_nothing(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "installed", lambda module: False)
    assert gpu.main([]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "CuPy is not installed" in error


@pytest.mark.parametrize("home", ["", "/nonexistent"])
def test_an_unwritable_home_gets_a_cache_folder(monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    assert gpu.gpu_environment()["CUPY_CACHE_DIR"]


def test_every_family_is_compared_with_the_cpu(device, capsys):
    assert gpu_check.main(device) == 0, capsys.readouterr().out
    assert "0 failed" in capsys.readouterr().out


def test_under_the_checker_arrays_lie_alone(device, monkeypatch, capsys):
    if device == "cpu":
        pytest.skip("there is no GPU")
    from lucid_gpu.devices.cupy_room import import_cupy

    cuda = import_cupy().cuda
    before = cuda.get_allocator()
    monkeypatch.setattr(gpu_check, "SIZES", (3,))
    monkeypatch.setattr(gpu_check, "families", lambda normal, rng: iter(()))
    try:
        assert gpu_check.main(device, "alone") == 0, capsys.readouterr().out
        assert cuda.get_allocator() != before
    finally:
        cuda.set_allocator(before)


def test_a_copy_is_timed(device):
    if device == "cpu":
        pytest.skip("there is no GPU")
    from bench import gpu_copy

    assert gpu_copy.copy_bandwidth(1 << 16) > 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--peers", "hips"], "no peer 'hips'; there are: lucid_gpu, torch-eager"),
        (["--case", "nosuch"], "no case 'nosuch'; there are: negation, chain-forward"),
        (["--rounds", "0"], "--rounds must be at least 1"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(flags, told, capsys):
    with pytest.raises(SystemExit):
        gpu.main(flags)
    assert told in capsys.readouterr().err
