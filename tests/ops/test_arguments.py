"""Tensors on several devices are refused before anything reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.nn import functional as F

ones = lucid_gpu.ones


def numbers(device: str, *values: int) -> Any:
    return lucid_gpu.tensor(values, device=device)


MIXED: dict[str, Callable[[str], Any]] = {
    "embedding": lambda d: F.embedding(numbers("cpu", 1), ones(3, 2, device=d)),
    "cross_entropy": lambda d: F.cross_entropy(ones(2, 3, device=d), numbers("cpu", 1, 2)),
    "cross_entropy by weight": lambda d: F.cross_entropy(
        ones(2, 3, device=d), numbers(d, 1, 2), ones(3)
    ),
    "layer_norm": lambda d: F.layer_norm(ones(2, 3, device=d), (3,), ones(3)),
    "rms_norm": lambda d: F.rms_norm(ones(2, 3, device=d), (3,), ones(3)),
    "batch_norm": lambda d: F.batch_norm(ones(2, 3, device=d), ones(3), ones(3), training=True),
    "index_add": lambda d: ones(3, device=d).index_add(0, numbers("cpu", 1), ones(1, device=d)),
    "index_add in place": lambda d: ones(3, device=d).index_add_(0, numbers(d, 1), ones(1)),
    "scatter_add": lambda d: ones(3, device=d).scatter_add(0, numbers("cpu", 1), ones(1, device=d)),
    "gather": lambda d: ones(3, device=d).gather(0, numbers("cpu", 1)),
    "index_select": lambda d: ones(3, device=d).index_select(0, numbers("cpu", 1)),
    "cat": lambda d: lucid_gpu.cat([ones(3, device=d), ones(3)]),
}


@pytest.mark.parametrize("name", MIXED)
def test_devices_must_agree(name: str, device: str) -> None:
    if device == "cpu":
        pytest.skip("one device is no two")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXED[name](device)
