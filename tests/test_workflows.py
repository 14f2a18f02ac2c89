"""The workflows of CI parse, and call make targets that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((TREE / ".github" / "workflows").glob("*.yml"))
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def targets() -> set[str]:
    return set(TARGET.findall((TREE / "Makefile").read_text("utf-8")))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install '.[test]'")
    read = yaml.safe_load(path.read_text("utf-8"))
    assert read["permissions"] == {"contents": "read"}
    for job in read["jobs"].values():
        assert job["timeout-minutes"] <= 180 and job["runs-on"]
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_parses_and_calls_make(path: Path) -> None:
    called = []
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
        called += re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))
    assert called and set(called) <= targets()


def test_what_ci_checks() -> None:
    text = (TREE / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    wanted = "test test-all test-python-loops test-processors test-cuda-standin lint docs"
    wanted += " test-cuda-driver"
    wanted += " release-check lint-image image-cpu"
    assert set(re.findall(r"run: make ([a-z-]+)", text)) == set(wanted.split())
    versions = re.search(r"python: \[(.*)\]", text)
    assert versions and versions[1] == '"3.10", "3.11", "3.12", "3.13", "3.14"'
    oldest = re.search(r'requires-python = ">=(.*)"', (TREE / "pyproject.toml").read_text("utf-8"))
    assert oldest and f'"{oldest[1]}"' in versions[1]


def test_the_page_of_versions_says_what_is_taken_and_run() -> None:
    page = (TREE / "docs" / "versions.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    table = {name.partition(",")[0]: (taken, run) for name, taken, run in rows}
    project = (TREE / "pyproject.toml").read_text("utf-8")
    ci = (TREE / ".github" / "workflows" / "ci.yml").read_text("utf-8")

    oldest = re.search(r'requires-python = ">=(.*)"', project)
    tested = re.search(r"python: \[(.*)\]", ci)
    wheels = re.search(r'^build = "(.*)"', project, re.MULTILINE)
    assert oldest and tested and wheels
    pythons = tested[1].replace('"', "")
    built = ", ".join(re.sub(r"cp3(\d+)-\*", r"3.\1", tag) for tag in wheels[1].split())
    assert table["Python"] == (
        f"{oldest[1]} and newer",
        f"{pythons}; wheels are built and tried on {built}",
    )

    needed = re.search(
        r'^dependencies = \["numpy>=(.*)", "ml_dtypes>=(.*)"\]', project, re.MULTILINE
    )
    oldest_job = ci.partition("\n  oldest:")[2].partition("\n\n")[0]
    job = re.search(r'version: "(.*)"(?:.*\n)*.*make test PIP_ARGS="numpy==(.*)\.\*"', oldest_job)
    assert needed and job and job[2] == needed[1]
    assert table["NumPy"] == (
        f"{needed[1]} and newer",
        f"the newest for each Python; {job[2]} on Python {job[1]}",
    )
    assert table["ml_dtypes"] == (f"{needed[2]} and newer", "the newest")

    cupy = dict(re.findall(r'"cupy-cuda(\d+)x\[ctk\]>=(\d+)"', project))
    (lowest,) = set(cupy.values())
    assert table["CuPy"][0] == f"{lowest} and newer, for CUDA {' or '.join(cupy)}"
    assert f'"cupy-cuda12x>={lowest}; ' in project  # of the extra that tests install

    oracle = re.search(r'^oracle = \["torch==(.*)"\]', project, re.MULTILINE)
    nightly = (TREE / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    assert oracle and "make fuzz ARGS" in nightly
    makefile = (TREE / "Makefile").read_text("utf-8")
    assert "fuzz: $(STAMPS)/test-oracle" in makefile
    assert table["PyTorch"] == (oracle[1], f"{oracle[1]}, every night")


def test_a_gpu_is_used_only_where_somebody_asks() -> None:
    text = (TREE / ".github" / "workflows" / "gpu.yml").read_text("utf-8")
    assert "runs-on: [self-hosted, gpu]" in text and "run: make gpu" in text
    assert re.search(r"on:\n  workflow_dispatch:\n  pull_request:\n    types: \[labeled\]\n", text)


def test_ci_runs_the_slow_tests_and_every_way() -> None:
    command = re.search(
        r"^exec make (.*)$", (TREE / ".ci" / "run").read_text("utf-8"), re.MULTILINE
    )
    assert command
    called = "lint lines test-all test-without-torch test-cuda-driver test-python-loops"
    called += " test-processors test-cuda-standin"
    assert command[1] == f"--keep-going {called} ORACLE=1" and set(called.split()) <= targets()
    makefile = (TREE / "Makefile").read_text("utf-8")
    runs = re.search(r"^test-all:.*\n\t@(.*)$", makefile, re.MULTILINE)
    assert runs and runs[1] == "$(PY) -m pytest -n 2 $(ARGS)"  # every test, once
    nightly = (TREE / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    assert "make test-cuda-standin ARGS=tests" in nightly  # what CI takes one in four of
