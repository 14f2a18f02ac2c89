"""What of `make gpu` can be tried without a GPU: limits, results kept, the table, the refusal.

All of it together is tried by test_gpu_rehearsal.py.
"""

import json
import math
import os
import random
import sys
import tarfile
import time

import pytest

from bench import gpu, gpu_cases, gpu_check, gpu_journal, gpu_large, gpu_parts, gpu_report
from bench.gpu_journal import Journal, note, pieces, read
from bench.gpu_kernels import Kernels
from bench.gpu_pieces import SOME_FAILED
from bench.gpu_process import run
from bench.gpu_results import Results


def run_here(command, seconds, log):
    return run(command, seconds, log, {**os.environ})


def test_a_process_that_hangs_is_ended_with_its_children(tmp_path):
    start = time.monotonic()
    script = "echo begun; setsid sleep 1234 & sleep 1234; true"
    ended = run_here(["sh", "-c", script], 1.0, tmp_path / "log.gz")
    assert time.monotonic() - start < 100
    assert (ended.code, ended.verdict) == (None, "out of time")
    assert "begun" in ended.text()
    for path in gpu.Path("/proc").glob("[0-9]*/cmdline"):
        assert b"sleep\x001234" not in path.read_bytes()


def test_a_process_that_fails_or_crashes_says_how(tmp_path):
    ended = run_here([sys.executable, "-c", "raise SystemExit('no luck')"], 200, tmp_path / "a.gz")
    assert (ended.verdict, ended.last_line) == ("failed", "no luck")
    ended = run_here(["sh", "-c", "echo before; kill -SEGV $$"], 200, tmp_path / "b.gz")
    assert (ended.verdict, ended.how) == ("crashed", "it was ended by SIGSEGV")
    assert ended.text() == "before\n"
    ended = run_here(["sh", "-c", "kill -KILL $$"], 200, tmp_path / "c.gz")
    assert ended.how == "it was ended by SIGKILL, maybe for its memory"


def test_a_log_that_is_too_long_keeps_its_beginning_and_end(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.gpu_process.MOST_LOG", 20_000)
    told = "import os\nfor n in range(300): print(n, os.urandom(2000).hex())"
    ended = run_here([sys.executable, "-c", told], 200, tmp_path / "log.gz")
    text = ended.text()
    assert text.startswith("0 ") and "bytes are left out" in text
    assert text.splitlines()[-1].startswith("299 ")
    assert ended.log.stat().st_size < 600_000


def test_a_journal_is_read_to_where_its_writer_was_killed(tmp_path):
    path = tmp_path / "journal.gz"
    journal = Journal(path, "check")
    for n in range(50):
        journal.write(f"piece {n}", "passed")  # and never closed
    whole = path.read_bytes()
    assert [e["piece"] for e in read(path)] == [f"piece {n}" for n in range(50)]
    path.write_bytes(whole[:-20])
    count = len(read(path))
    assert 0 < count < 50
    note(path, "check", "another", "passed")
    assert [e["piece"] for e in read(path)][count:] == ["another"]


def test_a_piece_that_is_tried_again_keeps_its_failure_till_it_ends(tmp_path):
    path = tmp_path / "journal.gz"
    for outcome in ("began", "failed", "began", "began"):
        note(path, "check", "a", outcome, message=outcome)
    figures = gpu.part_figures(read(path), "check")
    assert figures["failed"] == {"a": "failed"} and figures["not_ended"] == ["a"]
    note(path, "check", "a", "passed")
    assert gpu.part_figures(read(path), "check")["failed"] == {}
    note(path, "check", None, gpu_journal.FORGOTTEN)
    assert pieces(read(path), "check") == {}
    assert gpu.part_figures(read(path), "check") == {"verdict": "not begun"}


def test_parts_that_had_their_time_come_last(tmp_path):
    parts = [part for part in gpu.PARTS if part.name in ("check", "suite", "large", "ncu")]
    states = {"check": "passed", "suite": "out of time", "large": "not begun", "ncu": "not ended"}
    assert [part.name for part in gpu.in_turn(parts, states)] == ["large", "ncu", "suite"]


def _in_one(window, part, seconds):
    """Pieces that are processes: the first fails, the second runs out of time."""

    def do(name, limit):
        ended = window.run(part, ["sh", "-c", "exit 1" if name == "a" else "sleep 60"], limit)
        return ended, "failed", {"message": ended.how}

    return gpu_parts.one_by_one(window, part, ["a", "b"], seconds, do)


def _raise(window, part, seconds):
    raise LookupError("no luck")


# How a part can end: its verdict, and its work; a command of `in_pieces` is a script of the shell.
ENDINGS = {
    "passes": ("passed", gpu_parts.in_pieces(lambda window: [["exit 0"]])),
    "fails": ("failed", gpu_parts.in_pieces(lambda window: [["echo no luck; exit 1"]])),
    "crashes": ("crashed", gpu_parts.in_pieces(lambda window: [["kill -SEGV $$"]])),
    "runs-out": ("out of time", gpu_parts.in_pieces(lambda window: [["sleep 60"]])),
    "runs-out-between": ("out of time", gpu_parts.in_pieces(lambda window: [["sleep 0.5"]] * 2)),
    "runs-out-in-a-piece": ("out of time", _in_one),
    "raises": ("failed", _raise),
    "is-skipped": ("skipped", lambda *told: {"verdict": "skipped", "summary": "for a reason"}),
}


@pytest.mark.slow
def test_every_ending_of_a_part_comes_after_every_ending_of_another(tmp_path, monkeypatch):
    """All ways to end in one run, twice in a row, then once more by the same command."""
    monkeypatch.setattr("bench.gpu_parts.LEAST_SECONDS", 0.2)
    monkeypatch.setattr("bench.gpu.LEAST_SECONDS", 0.2)
    parts = [
        gpu_parts.Part(kind + again, kind, 0.6 if verdict == "out of time" else 60, work)
        for again in ("", "-again")
        for kind, (verdict, work) in ENDINGS.items()
    ]
    shell = ["--python", "sh -c 'eval \"$1\"'", "--device", "cpu"]  # which is told: -m COMMAND
    before = 0
    for _ in range(2):
        assert gpu.main(["--results", str(tmp_path), *shell], parts) == 1
        entries = read(tmp_path / "journal.jsonl.gz")
        for part in parts:
            wanted = ENDINGS[part.name.removesuffix("-again")][0]
            found = gpu.part_figures(entries, part.name)
            assert found["verdict"] == wanted, (part.name, found)
            began = [e for e in entries[before:] if (e["part"], e["piece"]) == (part.name, None)]
            assert len(began) == 2 * (wanted != "passed" or not before), (part.name, began)
        before = len(entries)


def test_parts_are_named_by_name_or_group():
    names = [part.name for part in gpu.chosen("large, sanitizer check", gpu.PARTS)]
    assert names == ["large", "memcheck", "racecheck", "synccheck", "initcheck", "check"]
    assert gpu.chosen("", gpu.PARTS) == list(gpu.PARTS)
    told = gpu.listed(gpu.PARTS)
    assert all(part.name in told and part.title in told for part in gpu.PARTS)


def test_every_failure_stays_in_the_results_however_many_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.gpu_results.MOST_FILE", 200_000)
    made = document()
    made["parts"]["suite"] = {
        "verdict": "failed",
        "failed": {f"test {n}": "x" * 3000 for n in range(100)},
    }
    Results(tmp_path).write(made)
    path = tmp_path / "gpu.json"
    assert path.stat().st_size < 200_000
    failed = json.loads(path.read_text())["parts"]["suite"]["failed"]
    assert len(failed) == 100 and all("journal" in message for message in failed.values())


def test_logs_go_into_two_files_and_lose_their_middle_when_these_are_full(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.gpu_results.MOST_FILE", 200_000)
    monkeypatch.setattr("bench.gpu_results.KEPT_ENDS", 2_000)
    results, kept = Results(tmp_path / "results"), []
    for n in range(5):
        log = tmp_path / f"{n}.log.gz"
        stream = gpu_journal.Stream(log)
        stream.write(b"begun " + random.Random(n).randbytes(90_000) + b" ended")
        stream.close()
        kept.append(results.keep_log(f"part-{n}", log).split(":")[0])
    assert kept == ["logs.tar", "logs.tar", "logs-2.tar", "logs-2.tar", "logs.tar"]
    files = list((tmp_path / "results").iterdir())
    assert all(path.stat().st_size < 230_000 for path in files)
    with tarfile.open(tmp_path / "results" / "logs.tar") as tar:
        last = tar.getmembers()[-1]
        (tmp_path / "last.gz").write_bytes(tar.extractfile(last).read())
    text, _ = gpu_journal.unpacked(tmp_path / "last.gz")
    assert text.startswith(b"begun") and text.endswith(b"ended") and b"left out" in text


def test_kernels_are_carried_and_only_new_ones_are_added(tmp_path, monkeypatch):
    def put(folder, name, size=3000):
        (folder / f"{name}.cubin").write_bytes(random.Random(name).randbytes(size))

    tar, one, two = tmp_path / "kernels.tar", tmp_path / "one", tmp_path / "two"
    here = Kernels(tar, one)
    assert "no kernels are carried" in here.unpack()
    put(one, "a"), put(one, "b")
    assert here.save() == "2 new kernels are saved" and here.save() == ""
    there = Kernels(tar, two)
    assert there.unpack() == "2 kernels are carried"
    assert (two / "a.cubin").read_bytes() == (one / "a.cubin").read_bytes()
    assert there.save() == ""
    put(two, "c")
    assert there.save() == "1 new kernels are saved"
    assert Kernels(tar, tmp_path / "three").unpack() == "3 kernels are carried"
    size = tar.stat().st_size
    monkeypatch.setattr("bench.gpu_kernels.MOST_FILE", size + 5000)
    put(two, "d", 50_000)
    assert there.save() == "0 new kernels are saved, 1 did not fit"
    assert tar.stat().st_size == size


def test_what_ncu_says_is_read():
    text = """==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","a(float*, int)","gpu__time_duration.sum","ns","1,024"
"0","7","a(float*, int)","launch__registers_per_thread","register/thread","32"
"1","7","b","gpu__time_duration.sum","ns","7"
==PROF== Disconnected"""
    first, second = gpu_parts.read_metrics(text)
    assert first == {
        "kernel": "a(float*, int)",
        "gpu__time_duration.sum": "1,024 ns",
        "launch__registers_per_thread": "32 register/thread",
    }
    assert second["kernel"] == "b" and gpu_parts.read_metrics("no counters") == []


@pytest.mark.parametrize("work", gpu_large.WORKS)
def test_the_places_of_large_tensors(work, device):
    function, _ = gpu_large.WORKS[work]
    function((1 << 12) + gpu_large.PAST, device)


def test_a_wrong_element_of_a_large_tensor_is_found():
    with pytest.raises(ArithmeticError, match=r"found \[1.0, 3.0\], not \[1.0, 2.0\]"):
        gpu_large.near([1.0, 3.0], [1.0, 2.0])


def document(toy=False):
    """lucid_gpu twice as fast as torch eager, at half of the copy's bandwidth."""
    count = gpu_cases.sized(CHAIN, toy)[0]
    ours, theirs = 2e-4 * count / (1 << 26), 4e-4 * count / (1 << 26)
    name = "chain-forward float32"
    return {
        "updated": "2000-01-01T00:00:00",
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
            "copy": {
                "verdict": "passed",
                "pieces": {"64 MiB": {"figures": {"bytes_a_second": 8.05e12}}},
                "seconds": 1,
            },
        },
        "benchmarks": {
            "lucid_gpu": {
                name: {
                    "seconds": ours,
                    "device": 1e-4,
                    "host": 2e-5,
                    "first": 0.5,
                    "sample": [[1.0, 2.0]],
                }
            },
            "torch-eager": {
                name: {"seconds": theirs, "device": 3e-4, "host": 4e-5, "sample": [[1.0, 2.0]]}
            },
            "torch-compile": {name: {"failed": "no compiler"}},
        },
    }


(CHAIN,) = [case for case in gpu_cases.CASES if case.name == "chain-forward"]


def test_the_table_relates_a_case_to_a_copy_and_to_peers(tmp_path):
    Results(tmp_path).write(document())
    text = (tmp_path / "gpu.md").read_text()
    # Three arrays of 256 MiB in 0.2 ms are 4.03 TB/s, half of the copy's 8.05.
    row = (
        "| chain, forward | float32 | 200.0 us | 100.0 us | 20.0 us | 500.000 ms | 4027 | 50% |  "
        "| 0.50 (300.0 us, 40.0 us) | failed | under 90% |"
    )
    assert row in text
    assert "sample" not in (tmp_path / "gpu.json").read_text()


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


def test_without_a_gpu_it_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu, "installed", lambda module: False)
    assert gpu.main(["--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "CuPy is not installed" in error


def test_kernels_are_kept_where_they_can_be_written(monkeypatch):
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    assert os.access(gpu.Path(gpu.gpu_environment()["CUPY_CACHE_DIR"]).parent, os.W_OK)
    monkeypatch.setenv("CUPY_CACHE_DIR", "/somewhere")
    assert gpu.gpu_environment()["CUPY_CACHE_DIR"] == "/somewhere"


@pytest.mark.parametrize("family", gpu_check.FAMILIES)
def test_every_family_is_compared_with_the_cpu(family, device, capsys):
    assert gpu_check.main(["--device", device, "--family", family]) == 0, capsys.readouterr().out


def test_a_wrong_result_of_a_family_is_said(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "TOLERANCE", {"float32": -1.0})
    assert gpu_check.main(["--device", "cpu", "--family", "strides"]) == SOME_FAILED
    assert "a broadcast row: failed ArithmeticError: off by 0" in capsys.readouterr().out


def test_under_the_checker_arrays_lie_alone(device, capsys):
    if device == "cpu":
        pytest.skip("there is no GPU")
    from lucid_gpu.devices.cupy_backend import import_cupy

    cuda = import_cupy().cuda
    before = cuda.get_allocator()
    try:
        told = ["--device", device, "--family", "strides", "--alone"]
        assert gpu_check.main(told) == 0, capsys.readouterr().out
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
        (["--parts", "nosuch"], "no part 'nosuch'; there are: check, suite, memcheck, sanitizer"),
        (["--case", "nosuch"], "no case 'nosuch'; there are: negation, column-sum"),
        (["--rounds", "0"], "--rounds must be at least 1"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(flags, told, capsys, tmp_path):
    with pytest.raises(SystemExit):
        gpu.main(["--results", str(tmp_path), *flags])
    assert told in capsys.readouterr().err
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "say where the results go: make gpu RESULTS=folder" in capsys.readouterr().err
