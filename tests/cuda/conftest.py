"""Tests of lucid_gpu.cuda run where there is a GPU, or over the stand-in."""

from __future__ import annotations

import pytest


@pytest.fixture
def gpu(device: str) -> None:
    """Leave a test out on the CPU."""
    if device != "cuda":
        pytest.skip("there is no GPU")
