"""Initialisers: the spread they promise."""

import math

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import same_error, torch_module

SHAPE = (60, 20, 3, 5)
FAN_IN, FAN_OUT = 20 * 15, 60 * 15

# function, settings, standard deviation, and the bound where there is one
SPREADS = [
    ("uniform_", {"a": -2.0, "b": 4.0}, 6 / math.sqrt(12), None),
    ("normal_", {"std": 3.0}, 3.0, None),
    ("xavier_uniform_", {"gain": 2.0}, 2 * math.sqrt(2 / (FAN_IN + FAN_OUT)), math.sqrt(3)),
    ("xavier_normal_", {}, math.sqrt(2 / (FAN_IN + FAN_OUT)), None),
    ("kaiming_uniform_", {"nonlinearity": "relu"}, math.sqrt(2 / FAN_IN), math.sqrt(3)),
    ("kaiming_uniform_", {"a": math.sqrt(5)}, math.sqrt(1 / 3 / FAN_IN), math.sqrt(3)),
    ("kaiming_normal_", {"mode": "fan_out"}, math.sqrt(2 / FAN_OUT), None),
]


@pytest.mark.parametrize(("name", "settings", "std", "bound"), SPREADS)
def test_spread(name, settings, std, bound, device):
    tensor = nn.Parameter(lucid_gpu.empty(SHAPE, device=device))
    assert getattr(nn.init, name)(tensor, **settings) is tensor
    assert tensor.requires_grad and tensor.is_leaf
    values = tensor.detach().cpu().numpy()
    assert values.std() == pytest.approx(std, rel=0.03)
    if bound:
        assert 0.98 * bound * std < np.abs(values).max() <= bound * std


def test_constants():
    tensor = lucid_gpu.empty(2, 3)
    assert nn.init.ones_(tensor).tolist() == [[1] * 3] * 2
    assert nn.init.zeros_(tensor).tolist() == [[0] * 3] * 2
    assert nn.init.constant_(tensor, 2.5).tolist() == [[2.5] * 3] * 2
    assert nn.init.eye_(tensor).tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("name", ["linear", "tanh", "relu", "leaky_relu", "selu", "sigmoid"])
def test_gains_are_torchs(name):
    assert nn.init.calculate_gain(name) == torch_module().nn.init.calculate_gain(name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.init.xavier_uniform_(m.zeros(3)), "fewer than 2 dimensions"),
        (lambda m: m.nn.init.calculate_gain("x"), "Unsupported nonlinearity x"),
        (lambda m: m.nn.init.kaiming_normal_(m.zeros(2, 2), mode="x"), "Mode x not supported"),
        (lambda m: m.nn.init.eye_(m.zeros(2)), "Only tensors with 2 dimensions are supported"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)
