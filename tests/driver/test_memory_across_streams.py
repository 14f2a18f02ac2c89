"""Memory that goes back to CuPy's pool while another stream still works on it."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu as torch
from lucid_gpu import cuda

SEEDS = range(1, 17)


def read_elsewhere(recorded: bool) -> float:
    """A tensor of the default stream is read on another one, and its memory used again at once."""
    other = cuda.Stream()
    x = torch.full((1000,), 3.0, device="cuda") + 0
    x.array
    other.wait_stream(cuda.current_stream())
    with cuda.stream(other):
        y = x * 2
        y.array
    if recorded:
        x.record_stream(other)
    del x
    # One of these lies in the same memory, unless it is held.
    others = [torch.full((1000,), 100.0, device="cuda") for _ in range(4)]
    cuda.current_stream().wait_stream(other)
    assert len(others) == 4
    return float(y.max().item())


def test_recorded_memory_is_not_used_again(driver: Any) -> None:
    for seed in SEEDS:
        with driver.order(seed):
            assert read_elsewhere(recorded=True) == 6


def test_memory_that_was_not_recorded_is_seen_to_be_used_again(driver: Any) -> None:
    found = set()
    for seed in SEEDS:
        with driver.order(seed):
            found.add(read_elsewhere(recorded=False))
    assert found == {6, 200}


@pytest.mark.parametrize("waits", [True, False])
def test_two_streams_of_tensors(driver: Any, waits: bool) -> None:
    right = []
    base = 100 if waits else 200  # the pool's memory holds what was written before: say which
    for seed in SEEDS:
        with driver.order(seed):
            first, second = cuda.Stream(), cuda.Stream()
            total = torch.zeros(1000, device="cuda")
            total.array
            cuda.synchronize()
            with cuda.stream(first):
                total += base + seed
                total.array
            if waits:
                second.wait_stream(first)
            with cuda.stream(second):
                result = (total * 2).sum().item()
            right.append(result == 2000 * (base + seed))
            cuda.synchronize()
    assert set(right) == ({True} if waits else {True, False})
