"""Initializers: the spread they promise."""

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


def test_truncated(device):
    x = nn.init.trunc_normal_(lucid_gpu.empty(20000, device=device), 1.0, 2.0, 0.0, 3.0)
    drawn = x.cpu().numpy()
    assert 0 <= drawn.min() < 0.01
    assert 2.99 < drawn.max() <= 3
    assert drawn.mean() == pytest.approx(1.4133, abs=0.02)  # of the truncated distribution
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        nn.init.trunc_normal_(x, 5, 1)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 2, 2)])
def test_orthogonal(shape, device):
    x = nn.init.orthogonal_(lucid_gpu.empty(shape, device=device), 2.0).cpu().numpy()
    x = x.reshape(shape[0], -1)
    small = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
    assert small == pytest.approx(4 * np.eye(len(small)), abs=1e-5)


def test_sparse(device):
    x = nn.init.sparse_(lucid_gpu.empty(40, 5, device=device), 0.3, 2.0).cpu().numpy()
    assert ((x == 0).sum(0) == 12).all()
    assert x[x != 0].std() == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize(("shape", "groups"), [((4, 2, 3), 2), ((2, 3, 3, 3), 1), ((2,) * 5, 1)])
def test_dirac(shape, groups):
    ours, theirs = (m.nn.init.dirac_(m.ones(shape), groups) for m in (lucid_gpu, torch_module()))
    assert ours.tolist() == theirs.tolist()


def test_older_names_warn():
    with pytest.warns(FutureWarning, match="`nn.init.eye` is now deprecated in favor"):
        assert nn.init.eye(lucid_gpu.zeros(2, 2)).tolist() == [[1, 0], [0, 1]]
    for name in ("constant", "dirac", "kaiming_normal", "orthogonal", "sparse", "xavier_uniform"):
        assert hasattr(nn.init, name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda i, x: i.dirac_(x), "Only tensors with 3, 4, or 5 dimensions are supported"),
        (lambda i, x: i.dirac_(x[None], 2), "dim 0 must be divisible by groups"),
        (lambda i, x: i.orthogonal_(x[0]), "Only tensors with 2 or more dimensions are supported"),
        (lambda i, x: i.sparse_(x[0], 0.1), "Only tensors with 2 dimensions are supported"),
    ],
)
def test_errors_of_the_rarer_ones_are_torchs(call, words):
    same_error(lambda m: call(m.nn.init, m.ones(3, 3)), words)
