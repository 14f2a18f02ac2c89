"""Normalisation against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.normalization import moments
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (normal((4, 6)), (6,)),
        (normal((2, 3, 4)), (3, 4)),
        (normal((4, 3, 2)).T, (4,)),
        (normal((2, 3, 8))[..., ::2], (4,)),
    ],
)
def test_layer_norm_agrees_with_torch(x, shape, affine, device):
    more = [normal(shape), normal(shape)] if affine else []
    agree(lambda m, x, *p: m.nn.functional.layer_norm(x, shape, *p), x, *more, device=device)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "x", [normal((6, 3)), normal((4, 3, 5)), normal((4, 3, 2, 2)), normal((2, 4, 3, 5)).T]
)
def test_batch_norm_agrees_with_torch(x, training, device):
    c = x.shape[1]

    def normalised(m, x, weight, bias, mean, variance):
        mean, variance = mean.detach().clone(), variance.detach().clone()
        y = m.nn.functional.batch_norm(
            x, mean, variance, weight, bias, training=training, momentum=0.2
        )
        return y, mean, variance

    agree(normalised, x, normal(c), normal(c), normal(c), normal(c) ** 2 + 0.1, device=device)


def test_moments_are_stable_for_a_large_mean():
    x = (normal((50, 3)) + 1e4).astype(np.float32)
    mean, variance = moments(lucid_gpu.tensor(x), [0])
    np.testing.assert_allclose(variance.numpy()[0], x.astype(np.float64).var(0), rtol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.layer_norm(x, (3,), w),
        lambda x, w: F.batch_norm(x, None, None, w, training=True),
    ],
)
def test_first_and_second_gradients(function):
    x = lucid_gpu.tensor(normal((4, 3)), requires_grad=True)
    w = lucid_gpu.tensor(normal(3), requires_grad=True)
    assert gradcheck(function, (x, w))
    assert gradgradcheck(function, (x, w))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.functional.layer_norm(m.zeros(2, 3), (4,)), "normalized_shape=[4]"),
        (
            lambda m: m.nn.functional.layer_norm(m.zeros(2, 3), (3,), m.zeros(2)),
            "Expected weight to be of same shape as normalized_shape",
        ),
        (
            lambda m: m.nn.functional.batch_norm(m.zeros(1, 3), None, None, training=True),
            "Expected more than 1 value per channel when training",
        ),
        (
            lambda m: m.nn.functional.batch_norm(m.zeros(2, 3), m.zeros(2), m.ones(2)),
            "running_mean should contain 3 elements not 2",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)
