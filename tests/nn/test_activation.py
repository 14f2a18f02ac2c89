"""Activations: one table, compared with PyTorch at ordinary and at awkward places."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error, torch_module

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
    ("Threshold", "threshold", {"threshold": 0.3, "value": 2.0}),
    ("Hardshrink", "hardshrink", {"lambd": 0.7}),
    ("Softshrink", "softshrink", {"lambd": 0.7}),
    ("RReLU", "rrelu", {"lower": 0.3, "upper": 0.3}),
    ("Softmin", "softmin", {"dim": 1}),
    ("GLU", "glu", {"dim": 0}),
    ("Softmax", "softmax", {"dim": 1}),
    ("LogSoftmax", "log_softmax", {"dim": 0}),
]
ELEMENTWISE = [row for row in ROWS if "dim" not in row[2]]


@pytest.mark.parametrize(("module", "function", "settings"), ROWS)
def test_agrees_with_torch(module, function, settings, device):
    x = np.random.default_rng(0).standard_normal((4, 6)) * 3

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
    kinds = ({}, settings) if module != "Threshold" else (settings,)
    in_place = (
        [{**settings, "inplace": True}]
        if hasattr(getattr(nn, module)(**settings), "inplace")
        else []
    )
    for s in (*kinds, *in_place):
        ours, theirs = (getattr(m.nn, module)(**s) for m in (lucid_gpu, torch_module()))
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(("module", "function", "settings"), ROWS)
def test_first_and_second_gradients(module, function, settings):
    x = lucid_gpu.tensor([[-2.3, -0.4], [0.6, 1.7]], dtype=lucid_gpu.float64, requires_grad=True)
    layer = getattr(nn, module)(**settings)
    assert gradcheck(layer, (x,))
    assert gradgradcheck(layer, (x,))


@pytest.mark.parametrize(("shape", "count"), [((3, 4, 2), 4), ((2, 4), 1), ((), 1)])
def test_prelu(shape, count, device):
    x, slopes = (np.random.default_rng(0).standard_normal(s) for s in (shape, count))
    agree(lambda m, x, w: m.nn.functional.prelu(x, w), x, slopes, device=device)


def test_prelu_learns_one_slope():
    agree(lambda m, x: m.nn.PReLU(1, 0.3).to(x)(x), np.array([-2.0, 1.0]), device="cpu", order=1)
    assert [p.tolist() for p in nn.PReLU(2).parameters()] == [[0.25, 0.25]]


def test_random_slopes(device):
    x = lucid_gpu.full((1000,), -2.0, device=device, requires_grad=True)
    y = nn.RReLU(0.1, 0.4)(x)
    slopes = (y / x).detach()
    assert 0.1 <= slopes.min().item() < 0.12
    assert 0.38 < slopes.max().item() <= 0.4
    y.sum().backward()
    assert lucid_gpu.allclose(x.grad, slopes)


def test_gumbel_softmax(device):
    scores = lucid_gpu.tensor([1.0, 0.0, 2.0], device=device, requires_grad=True)
    y = F.gumbel_softmax(scores.expand(4000, 3), hard=True)
    assert y.sum(1).tolist() == [1.0] * 4000
    assert y.mean(0).tolist() == pytest.approx(scores.softmax(0).tolist(), abs=0.03)
    y[:, 2].sum().backward()
    assert scores.grad[2].item() > 0
    soft = F.gumbel_softmax(scores, tau=0.5)
    assert 0 < soft.max().item() < 1
    with pytest.warns(UserWarning, match="`eps` parameter is deprecated"):
        F.gumbel_softmax(scores, eps=1.0)


def test_softmax_over_channels(device):
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 2))
    agree(lambda m, x: m.nn.Softmax2d()(x), x, device=device, order=1)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_a_dimension_should_be_named(name):
    with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name} has been") as seen:
        getattr(F, name)(lucid_gpu.ones(2, 2))
    assert seen[0].filename == __file__


def test_older_names_of_hardtanh():
    with pytest.warns(FutureWarning, match="`min_value` is deprecated and renamed to `min_val`"):
        assert nn.Hardtanh(min_value=-2.0).min_val == -2.0


def test_relu6_is_a_hardtanh():
    for m in (lucid_gpu, torch_module()):
        layer = m.nn.ReLU6(inplace=True)
        assert isinstance(layer, m.nn.Hardtanh)
        assert (layer.min_val, layer.max_val, repr(layer)) == (0.0, 6.0, "ReLU6(inplace=True)")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, x: m.nn.Softmax2d()(x[0, 0]), "Softmax2d: expected input to be 3D or 4D, got"),
        (lambda m, x: m.nn.functional.glu(x), "Halving dimension must be even, but dimension 2 "),
        (lambda m, x: m.nn.functional.glu(x.sum()), "glu does not support scalars because halv"),
        (lambda m, x: m.nn.PReLU(5)(x), "Found parameter numbers = 5 and channel size = 6."),
        (lambda m, x: m.prelu(x, m.ones(2, 3)), "Expected `weight` to be a scalar or 1D tensor,"),
        (lambda m, x: m.nn.Softshrink(-1)(x), "lambda must be in range"),
        (lambda m, x: m.nn.functional.hardshrink(x.long()), "not implemented for"),
        (lambda m, x: m.nn.RReLU(0.5, 0.1)(x), "Lower bound should be less than or equal to th"),
        (lambda m, x: m.nn.Hardtanh(1, -1), "max_val (-1) must be greater than min_val (1)"),
        (lambda m, x: m.nn.Threshold(), "missing"),
        (lambda m, x: m.nn.CELU(0)(x), "alpha cannot be 0 for CELU"),
        (lambda m, x: m.nn.Softmax(3)(x[:0]), "Dimension out of range"),
        *[
            (lambda m, x, f=f: getattr(m.nn.functional, f)(x.long()), "not implemented for 'Long'")
            for f in ("leaky_relu", "elu", "selu", "celu", "silu", "mish", "gelu", "softplus")
        ],
        (lambda m, x: m.nn.functional.hardsigmoid(x.long()), "not implemented for 'Long'"),
        (lambda m, x: m.nn.functional.hardswish(x.bool()), "not implemented for 'Bool'"),
        (lambda m, x: m.nn.functional.logsigmoid(x.byte()), "not implemented for 'Byte'"),
        (lambda m, x: m.nn.functional.threshold(x.bool(), 0, 1), "not implemented for 'Bool'"),
        (lambda m, x: m.nn.functional.gelu(x * 1j), "not implemented for 'ComplexFloat'"),
        (lambda m, x: m.nn.functional.hardtanh(x.byte()), "unsigned type with negative limits"),
        (lambda m, x: m.nn.functional.hardtanh(x.byte(), 0, 300), "without overflow"),
        (lambda m, x: m.nn.functional.hardtanh(x, 2, 1), "min_val cannot be greater than max_val"),
        (lambda m, x: m.nn.functional.hardtanh(x.int(), 0, float("inf")), "without overflow"),
        (lambda m, x: m.nn.functional.relu6(x.bool()), "inputs not supported for hardtanh"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m, m.zeros(2, 6, 3)), words)


def test_whole_numbers_are_cut_off_as_such(device):
    def cut(m, x):
        F = m.nn.functional
        return F.hardtanh(x), F.hardtanh(x, -1.5, 2.5), F.relu6(x), F.relu6(x.abs().byte())

    agree(cut, np.array([-3, 0, 2, 9]), device=device)


def test_fuses_into_one_kernel():
    with lucid_gpu.fusion.eager(False):
        y = F.gelu(F.silu(lucid_gpu.randn(64)) + 1) * 2
        assert len(lucid_gpu.explain(y).kernels) == 1


TWINS = ["relu", "leaky_relu", "elu", "hardtanh", "selu", "celu", "rrelu"]


@pytest.mark.parametrize("name", TWINS)
def test_in_place_twins(name, device):
    x = np.array([-1.0, 2.0])
    agree(lambda m, x: getattr(m.nn.functional, f"{name}_")(x * 1), x, device=device, order=1)
    agree(lambda m, x: m.threshold_(x * 1, 0.1, 20), x, device=device, order=1)


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
