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
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install 'lucid-gpu[test]'")
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
    wanted = "test-all test-python-loops test-processors test-cuda-standin lint docs"
    wanted += " test-cuda-driver"
    wanted += " release-check lint-image image-cpu"
    assert set(re.findall(r"run: make ([a-z-]+)", text)) == set(wanted.split())
    versions = re.search(r"python: \[(.*)\]", text)
    assert versions and versions[1] == '"3.10", "3.12", "3.13"'
    oldest = re.search(r'requires-python = ">=(.*)"', (TREE / "pyproject.toml").read_text("utf-8"))
    assert oldest and f'"{oldest[1]}"' in versions[1]


def test_a_gpu_is_used_only_where_somebody_asks() -> None:
    text = (TREE / ".github" / "workflows" / "gpu.yml").read_text("utf-8")
    assert "runs-on: [self-hosted, gpu]" in text and "run: make gpu" in text
    assert re.search(r"on:\n  workflow_dispatch:\n  pull_request:\n    types: \[labeled\]\n", text)


def test_ci_runs_the_slow_tests_and_every_way() -> None:
    command = re.search(
        r"^exec make (.*)$", (TREE / ".ci" / "run").read_text("utf-8"), re.MULTILINE
    )
    assert command
    called = "lines lint test-all test-python-loops test-processors test-cuda-standin"
    called += " test-cuda-driver"
    assert command[1] == f"{called} ORACLE=1" and set(called.split()) <= targets()
    makefile = (TREE / "Makefile").read_text("utf-8")
    assert makefile.count('-m "not slow"') == 1  # only make test leaves them out
