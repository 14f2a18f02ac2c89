"""`nn.functional` as modules call it."""

from __future__ import annotations

import pytest

import lucid_gpu
from lucid_gpu import nn


@pytest.mark.parametrize("name", ["relu", "mse_loss", "dropout", "max_pool2d", "linear"])
def test_modules_call_what_stands_in_functional(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "relu": nn.ReLU(),
        "mse_loss": nn.MSELoss(),
        "dropout": nn.Dropout(),
        "max_pool2d": nn.MaxPool2d(2),
        "linear": nn.Linear(2, 2),
    }
    monkeypatch.setattr(nn.functional, name, lambda *args, **kwargs: len(args) and name)
    x = lucid_gpu.ones(2, 2, 2)
    inputs = (x, x) if name == "mse_loss" else (x,)
    assert made[name](*inputs) == name
