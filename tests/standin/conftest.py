"""Tests of the stand-in itself import it, so they run with `--standin` only."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def cupy(request: pytest.FixtureRequest) -> Any:
    if not request.config.getoption("--standin"):
        pytest.skip("a test of the stand-in for CuPy: run with --standin")
    import cupy

    return cupy
