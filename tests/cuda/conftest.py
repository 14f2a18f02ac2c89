"""Tests of lucid_gpu.cuda run where there is a GPU, or over the stand-in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lucid_gpu.cuda import pending


@pytest.fixture
def gpu(device: str) -> None:
    """Leave a test out on the CPU."""
    if device != "cuda":
        pytest.skip("there is no GPU")


@pytest.fixture(autouse=True)
def _no_streams_left() -> Iterator[None]:
    """Streams that a test made current are forgotten, so that the next test fuses as ever."""
    yield
    pending._streams.clear()
