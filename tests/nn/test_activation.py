"""Activations: one table, compared with PyTorch at ordinary and at awkward places."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, torch_module

AWKWARD = [-1e30, -200.0, -40.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.3, 1.0, 2.9, 3.0, 6.0, 19.0, 21.0]
INFINITE = [200.0, float("inf"), -float("inf"), float("nan")]

# module, function, settings that differ from the defaults
ROWS = [
    ("ReLU", "relu", {}),
    ("ReLU6", "relu6", {}),
    ("LeakyReLU", "leaky_relu", {"negative_slope": 0.2}),
    ("ELU", "elu", {"alpha": 1.3}),
    ("SELU", "selu", {}),
    ("CELU", "celu", {"alpha": 1.4}),
    ("SiLU", "silu", {}),
    ("Mish", "mish", {}),
    ("GELU", "gelu", {}),
    ("GELU", "gelu", {"approximate": "tanh"}),
    ("Softplus", "softplus", {"beta": 2.0, "threshold": 15.0}),
    ("Softsign", "softsign", {}),
    ("Hardtanh", "hardtanh", {"min_val": -0.7, "max_val": 2.0}),
    ("Hardsigmoid", "hardsigmoid", {}),
    ("Hardswish", "hardswish", {}),
    ("LogSigmoid", "logsigmoid", {}),
    ("Sigmoid", "sigmoid", {}),
    ("Tanh", "tanh", {}),
    ("Tanhshrink", "tanhshrink", {}),
    ("Softmax", "softmax", {"dim": 1}),
    ("LogSoftmax", "log_softmax", {"dim": 0}),
]
ELEMENTWISE = [row for row in ROWS if "oftmax" not in row[1]]


@pytest.mark.parametrize(("module", "function", "settings"), ROWS)
def test_agrees_with_torch(module, function, settings, device):
    x = np.random.default_rng(0).standard_normal((4, 5)) * 3

    order = 1 if function == "hardsigmoid" else 2  # PyTorch has no second derivative of it
    agree(lambda m, x: getattr(m.nn, module)(**settings)(x), x, device=device, order=order)
    agree(
        lambda m, x: getattr(m.nn.functional, function)(x, **settings),
        x.T,
        device=device,
        order=order,
    )


@pytest.mark.parametrize(("module", "function", "settings"), ELEMENTWISE)
def test_agrees_with_torch_where_branches_meet(module, function, settings, device):
    x = np.array(AWKWARD)
    # PyTorch's own gradients of celu and hardsigmoid are rounded to float32 inside.
    agree(lambda m, x: getattr(m.nn, module)(**settings)(x), x, device=device, order=1, rtol=1e-7)


@pytest.mark.parametrize(("module", "function", "settings"), ELEMENTWISE)
def test_values_at_infinity_agree_with_torch(module, function, settings, device):
    if function == "gelu":
        return  # PyTorch gives NaN at infinity, or not, by the CPU it runs on
    x = np.array(INFINITE)
    agree(lambda m, x: getattr(m.nn, module)(**settings)(x), x, device=device, order=0)


@pytest.mark.parametrize(("module", "function", "settings"), ROWS)
def test_repr_is_torchs(module, function, settings):
    for s in ({}, settings):
        ours, theirs = (getattr(m.nn, module)(**s) for m in (lucid_gpu, torch_module()))
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(("module", "function", "settings"), ROWS)
def test_first_and_second_gradients(module, function, settings):
    x = lucid_gpu.tensor([[-2.3, -0.4], [0.6, 1.7]], dtype=lucid_gpu.float64, requires_grad=True)
    layer = getattr(nn, module)(**settings)
    assert gradcheck(layer, (x,))
    assert gradgradcheck(layer, (x,))


def test_fuses_into_one_kernel():
    with lucid_gpu.fusion.eager(False):
        y = F.gelu(F.silu(lucid_gpu.randn(64)) + 1) * 2
        assert len(lucid_gpu.explain(y).kernels) == 1


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "silu", "hardtanh", "selu"])
def test_in_place(name):
    x = lucid_gpu.tensor([-1.0, 2.0])
    expected = getattr(F, name)(x).tolist()
    assert getattr(F, name)(x, inplace=True) is x
    assert x.tolist() == expected


def test_in_place_is_the_last_positional_argument():
    x = lucid_gpu.tensor([-1.0, 2.0])
    assert F.relu(x, True) is x
    assert F.leaky_relu(x, 0.1, True) is x


def test_unknown_settings_are_named():
    with pytest.raises(TypeError, match="slope"):
        nn.LeakyReLU(slope=1)
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        F.gelu(lucid_gpu.ones(1), "cubic")
