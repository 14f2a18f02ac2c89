"""Tests of lucid_gpu.cuda run where there is a GPU, or over the stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lucid_gpu.backends import cudnn as settings
from lucid_gpu.cuda import pending
from lucid_gpu.devices import cudnn as by_cudnn


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


@pytest.fixture
def cudnn(gpu: None, request: pytest.FixtureRequest, monkeypatch: Any) -> Iterator[Any]:
    """The package, or what stands in for it."""
    standin = request.config.getoption("--standin")
    if standin:
        monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "standin" / "frontend"))
    by_cudnn.library.cache_clear()
    found = by_cudnn.library()
    if found is None:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    earlier = settings.set_flags()
    yield found
    settings.set_flags(*earlier)
    if standin:
        by_cudnn._thread.devices.clear()
        by_cudnn.library.cache_clear()
        del sys.modules["cudnn"]


@pytest.fixture
def standin(cudnn: Any) -> Any:
    """The stand-in, which tells what was asked of it."""
    if not hasattr(cudnn, "_graphs"):
        pytest.skip("the real cuDNN does not tell which engine ran")
    return cudnn
