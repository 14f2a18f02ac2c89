"""Cross entropy of a linear layer's scores, and older names, beside PyTorch's."""

import numpy as np
import pytest

from tests.nn.layers import pair, run_of
from tests.oracle import agree, gives, modules, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
CLASSES = np.array([2, 0, -100, 1])
LAYERS = {
    "plain": (lambda m: m.nn.LinearCrossEntropyLoss(3, 4), normal((4, 3)), CLASSES),
    "all": (
        lambda m: m.nn.LinearCrossEntropyLoss(
            3, 4, bias=True, reduction="sum", ignore_index=1, label_smoothing=0.1
        ),
        normal((4, 3)),
        np.abs(CLASSES) % 4,
    ),
    "positions": (
        lambda m: m.nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), bias=True),
        normal((3, 3)),
        np.array([[0, 1], [3, 2], [1, 1]]),
    ),
    "one": (lambda m: m.nn.LinearCrossEntropyLoss(3, 4), normal(3), np.array(2)),
    "probabilities": (
        lambda m: m.nn.LinearCrossEntropyLoss(3, 4, reduction="none"),
        normal((2, 3)),
        np.full((2, 4), 0.25),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_agrees_with_torch(name, device):
    make, x, target = LAYERS[name]
    theirs, ours = pair(make, device)
    assert repr(ours) == repr(theirs)

    def loss(layer, m, x, target):
        return layer(x, target.detach())

    agree(run_of(theirs, ours, loss), x, target, device=device, order=1)


def lce(m, x, w, t, **more):
    return m.nn.functional.linear_cross_entropy(x, w, t, **more)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: lce(m, m.zeros(2, 2, 3), m.zeros(4, 3), m.zeros(2)), "dimensionality 1 or 2"),
        (lambda m: lce(m, m.zeros(2, 3), m.zeros(3), m.zeros(2)), "dimensionality at least 2"),
        (lambda m: lce(m, m.zeros(2, 3), m.zeros(4, 2), m.zeros(2)), "got 3 and 2, respectively"),
        (
            lambda m: lce(m, m.zeros(2, 3), m.zeros(4, 3), m.zeros(2), linear_bias=m.zeros(3)),
            "expected linear_bias shape (4,), got (3,)",
        ),
        (lambda m: lce(m, m.zeros(3), m.zeros(4, 2, 3), m.zeros(2)), "requires batched input"),
        (
            lambda m: lce(m, m.zeros(2, 3), m.zeros(4, 3), m.zeros(2, 4), ignore_index=1),
            "ignore_index cannot be specified when target contains probabilities",
        ),
        (lambda m: m.nn.attention.sdpa_kernel(3).__enter__(), "got int"),
        (
            lambda m: m.nn.LinearCrossEntropyLoss(3, 2, weight=m.ones(3)),
            "expected weight shape to be (2,), got (3,)",
        ),
        (
            lambda m: m.nn.LinearCrossEntropyLoss(3, 2, label_smoothing=2.0),
            "expected label_smoothing to be in range [0, 1], got 2.0",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    torch_module().nn.attention  # imports it
    same_error(call, words)


def test_kernels_of_attention_are_those_of_the_device():
    def scenario(m, _):
        x, names, found = m.ones(1, 1, 2, 2), m.nn.attention.SDPBackend, {}
        for allowed in (names.MATH, [3, names.FLASH_ATTENTION], names.EFFICIENT_ATTENTION, []):
            try:
                with m.nn.attention.sdpa_kernel(allowed):
                    found[str(allowed)] = m.nn.functional.scaled_dot_product_attention(
                        x, x, x
                    ).sum()
            except RuntimeError as error:
                found[str(allowed)] = str(error)[:18]
        return [*found.values(), m.nn.functional.scaled_dot_product_attention(x, x, x).sum()]

    gives([4.0, 4.0, "No viable backend ", "No viable backend ", 4.0], scenario)


def test_older_names():
    def scenario(m, _):
        weight = m.nn.Parameter(m.tensor([3.0, 4.0]))
        weight.grad = m.tensor([3.0, 4.0])
        with pytest.warns(FutureWarning, match="clip_grad_norm` is now deprecated"):
            m.nn.utils.clip_grad_norm([weight], 2.5)
        layer = m.nn.Linear(2, 1, bias=False)
        state = {"weight": m.tensor([[1.0, 2.0]])}
        called = m.nn.utils.stateless.functional_call(layer, state, (weight.detach(),))
        return [[round(v, 4) for v in weight.grad.tolist()], called]

    gives([[1.5, 2.0], [11.0]], scenario)


@pytest.mark.parametrize("transpose", [False, True])
def test_weights_with_their_norm(transpose):
    pytest.importorskip("torch", reason="the oracle: make test ORACLE=1 installs torch")
    arrays = [normal((2, 3, 2)), normal(2), 1 + normal(2) ** 2, normal(2), normal(2)]
    if transpose:
        arrays[0] = arrays[0].swapaxes(0, 1).copy()
    found = []
    for m, _ in modules():
        weight, mean, variance, scale, shift = map(m.tensor, arrays)
        fuse = m.nn.utils.fuse_conv_bn_weights
        pairs = [
            fuse(weight, None, mean, variance, 1e-3, scale, shift, transpose),
            fuse(weight.requires_grad_(), shift, mean, variance, 1e-3, None, None, transpose),
        ]
        found.append([(p.requires_grad, p.detach().numpy()) for two in pairs for p in two])
    for (mine, a), (theirs, b) in zip(*found, strict=True):
        assert mine == theirs
        np.testing.assert_allclose(a, b, rtol=1e-6)
