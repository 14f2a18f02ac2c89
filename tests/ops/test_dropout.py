"""Dropout: what is zero, what is scaled, and that the gradient knows."""

import pytest

import lucid_gpu
from lucid_gpu.nn import functional as F


def test_zeros_and_scales():
    lucid_gpu.manual_seed(0)
    x = lucid_gpu.ones(200, 100, requires_grad=True)
    y = F.dropout(x, 0.25)
    assert sorted(set(y.detach().reshape(-1).tolist())) == pytest.approx([0, 4 / 3])
    assert abs((y == 0).float().mean().item() - 0.25) < 0.01
    y.sum().backward()
    assert lucid_gpu.equal(x.grad, y.detach())


def test_the_seed_decides():
    masks = []
    for seed in (1, 1, 2):
        lucid_gpu.manual_seed(seed)
        masks.append(F.dropout(lucid_gpu.ones(64)).tolist())
    assert masks[0] == masks[1] != masks[2]


def test_not_in_evaluation():
    x = lucid_gpu.ones(5)
    assert F.dropout(x, 0.5, training=False) is x
    layer = lucid_gpu.nn.Dropout(0.5).eval()
    assert layer(x) is x


def test_all_or_nothing():
    x = lucid_gpu.ones(5)
    assert F.dropout(x, 0.0).tolist() == [1] * 5
    assert F.dropout(x, 1.0).tolist() == [0] * 5


def test_in_place():
    x = lucid_gpu.ones(50)
    assert F.dropout(x, 0.5, inplace=True) is x
    assert (x == 0).any().item()


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_probability_outside_0_to_1(p):
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1, but got"):
        F.dropout(lucid_gpu.ones(2), p)
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1, but got"):
        lucid_gpu.nn.Dropout(p)
