"""Normalization within a sample, as functions: the layers are in tests/nn/test_layers.py."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal


@pytest.mark.parametrize(("p", "dim"), [(2.0, 1), (1.0, 0), (3, -1), (2, (0, 1))])
def test_normalize(p, dim, device):
    x = normal((3, 4))
    x[0] = 0
    agree(lambda m, x: m.nn.functional.normalize(x, p, dim), x, device=device, order=1)


def test_group_norm_of_halves_and_of_nothing(device):
    x, w, b = (normal(s).astype(np.float16) for s in ((2, 6, 5), 6, 6))
    agree(
        lambda m, x, w, b: m.nn.functional.group_norm(x, 3, w, b), x, w, b,
        device=device, order=1, rtol=2e-3, atol=2e-3,
    )  # fmt: skip
    agree(lambda m, x: m.nn.functional.group_norm(x, 2), normal((0, 4, 3)), device=device, order=1)


def test_gradients():
    double = {"dtype": lucid_gpu.float64, "requires_grad": True}
    x, w, b = (lucid_gpu.randn(*s, **double) for s in ((2, 4, 3), (4,), (4,)))
    assert gradcheck(lambda *a: F.group_norm(a[0], 2, *a[1:]), (x, w, b))
    assert gradgradcheck(lambda x: F.local_response_norm(x, 3, 0.5), (x,))


def test_instance_norm_by_running_figures(device):
    def run(m, x, mean, var):
        return m.nn.functional.instance_norm(x, mean.detach(), var.detach(), use_input_stats=False)

    agree(run, normal((2, 3, 4)), normal(3), abs(normal(3)), device=device, order=1)


@pytest.mark.parametrize("affine", [False, True])
def test_instance_norm_without_eps_makes_zeros_of_constant_channels(affine, device):
    x = normal((2, 3, 4))
    x[0, 1] = 0.5

    def run(m, x, w, b):
        return m.nn.functional.instance_norm(x, None, None, *[w, b] * affine, eps=0.0)

    agree(run, x, normal(3), normal(3), device=device)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda F, x: F.group_norm(x, 4), "channels in input to be divisible by num_groups, but"),
        (lambda F, x: F.group_norm(x[0, 0], 1), "at least 2 dimensions for input tensor but rec"),
        (lambda F, x: F.group_norm(x[:1, :2, 0], 2), "more than 1 value per channel when train"),
        (lambda F, x: F.group_norm(x, 2, x[0, :3, 0]), "vector of size equal to the number of ch"),
        (lambda F, x: F.group_norm(x.long(), 2), "not implemented for"),
        (lambda F, x: F.instance_norm(x, use_input_stats=False), "Expected running_mean and runn"),
        (lambda F, x: F.instance_norm(x[..., :1]), "Expected more than 1 spatial element when tr"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m.nn.functional, m.zeros(2, 6, 3)), words)
