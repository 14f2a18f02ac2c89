"""Tests of the driver stand-in itself run over it, so they run with `--driver` only."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# Where CuPy cannot be installed, its names cannot be imported.
collect_ignore_glob = [] if importlib.util.find_spec("cupy") else ["test_*.py"]


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What tests ask of the stand-in; afterwards no work of the test is left."""
    if not request.config.getoption("--driver"):
        pytest.skip("a test of the stand-in for CUDA's driver: run make test-cuda-driver")
    import cupy
    import driver_standin

    driver_standin.reset_counts()
    yield driver_standin
    for index in range(cupy.cuda.runtime.getDeviceCount()):
        cupy.cuda.Device(index).synchronize()
    assert driver_standin.not_executed() == [], driver_standin.problems


@pytest.fixture
def in_process(driver: Any) -> Callable[[str], str]:
    """Runs a program in a process of its own, which may lose CUDA; returns what it wrote."""

    def run(program: str) -> str:
        command = [sys.executable, "-c", program]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run
