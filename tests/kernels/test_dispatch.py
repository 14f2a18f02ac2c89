"""Functions with two halves: which of them runs, by the first argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid_gpu.kernels.dispatch import by_device


@by_device
def half(x: Any, *, times: int = 1) -> str:
    """What ran."""
    return f"cuda c {times}"


@half.on_host
def _half(x: Any, *, times: int = 1) -> str:
    return f"host {times}"


@pytest.mark.parametrize("first", [np.ones(2), [np.ones(2)], (np.ones(2), None)])
def test_the_executor_of_the_first_array_decides(
    first: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert half(first, times=3) == "host 3"
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    assert half(first) == "cuda c 1"
    assert (half.cuda_c(first), _half(first)) == ("cuda c 1", "host 1")


def test_it_is_documented_as_what_it_decorates() -> None:
    assert (half.__name__, half.__doc__) == ("half", "What ran.")


def test_other_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="NumPy or CuPy arrays; got a str"):
        half("x")
