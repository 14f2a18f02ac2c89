"""The README's example runs as printed; its figures and pictures are those of the results."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import draw_readme

TREE = Path(__file__).resolve().parents[1]


def _read(path: str) -> str:
    return (TREE / path).read_text("utf-8")


def test_the_example_runs() -> None:
    (printed,) = re.findall(r"```text\n(.*?)```", _read("README.md"), re.DOTALL)
    command = [sys.executable, "-c", draw_readme.example()]
    ended = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == printed


def test_what_the_examples_reached_is_what_a_run_reached() -> None:
    """To renew the rows: python -m bench.examples, and copy them from bench/results/examples.md."""
    page, results = (
        re.findall(r"^\| `\w+\.py.*$", _read(file), re.MULTILINE)
        for file in ("docs/examples.md", "bench/results/examples.md")
    )
    assert page == results and page


def test_size_and_import_time_are_those_of_the_results() -> None:
    cases = {case["name"]: case for case in json.loads(_read("bench/results/cpu.json"))["cases"]}
    megabytes = cases["size"]["peers"]["lucid_gpu"]["median"]
    assert f"in a {megabytes:.0f} MB install that imports in a tenth of the time" in _read(
        "README.md"
    )
    assert 0.05 < cases["import"]["to_eager"] <= 0.1


def test_the_speed_chart_is_that_of_the_results() -> None:
    """To draw it anew: make pictures."""
    assert draw_readme.speed(json.loads(_read("bench/results/cpu.json"))) == _read(
        "docs/pictures/speed.svg"
    )


def test_the_table_of_processors_is_that_of_the_results() -> None:
    """To write it anew: make pictures."""
    page = _read("docs/performance.md")
    assert draw_readme.with_table(page) == page
    rows = page.partition(draw_readme.MARKS[0])[2].partition(draw_readme.MARKS[1])[0].splitlines()
    assert len(rows) == 3 + len(draw_readme.CASES)


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler: CUDA C for the host is off")
def test_the_kernel_shown_is_the_one_generated() -> None:
    """To draw it anew: make pictures."""
    assert draw_readme.fused() == _read("docs/pictures/fused.svg")
