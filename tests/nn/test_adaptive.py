"""Bilinear and AdaptiveLogSoftmaxWithLoss: PyTorch's values, gradients, repr and sentences."""

import numpy as np
import pytest

import lucid_gpu
from tests.nn.layers import pair, run_of
from tests.oracle import agree, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
X, CLASSES = normal((5, 8)), np.array([1, 9, 2, 4, 0])


def adaptive(m):
    return m.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], div_value=2.0, head_bias=True)


LAYERS = {
    "adaptive": (adaptive, (X, CLASSES)),
    "Bilinear": (lambda m: m.nn.Bilinear(8, 3, 2), (X, normal((5, 3)))),
    "Bilinear of vectors": (lambda m: m.nn.Bilinear(8, 3, 2, bias=False), (X[0], normal(3))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_agrees_with_torch(name, device):
    make, given = LAYERS[name]
    theirs, ours = pair(make, device)
    run = run_of(theirs, ours, lambda layer, m, *given: layer(*given))
    agree(run, *given, device=device, order=1)


@pytest.mark.parametrize("name", LAYERS)
def test_repr_and_state_are_torchs(name):
    ours, theirs = (LAYERS[name][0](m) for m in (lucid_gpu, torch_module()))
    assert repr(ours) == repr(theirs)
    assert [(k, tuple(v.shape)) for k, v in ours.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in theirs.state_dict().items()
    ]


def test_other_ways_to_adaptive_scores(device):
    theirs, ours = pair(adaptive, device)

    def run(m, x, classes):
        layer = ours if m is lucid_gpu else theirs
        frequent, one = layer(x, classes % 2), layer(x[1], classes[1])
        return [layer.log_prob(x), layer.predict(x), frequent.output, frequent.loss, one.output]

    agree(run, X, CLASSES, device=device, order=1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: adaptive(m)(m.zeros(4, 8), m.tensor([1, 2, 10, 3])), "Target values should be"),
        (lambda m: adaptive(m)(m.zeros(4, 8), m.tensor([1, 2])), "same size in the batch dimens"),
        (lambda m: adaptive(m)(m.zeros(4, 8), m.tensor(1)), "0D target tensor expects 1D input"),
        (lambda m: adaptive(m)(m.zeros(4, 8), m.zeros(4, 1).long()), "multi-target not supported"),
        (lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [5, 2]), "unique, positive integers"),
        (lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(8, 10, []), "a sequence of length larger tha"),
        (lambda m: m.nn.Bilinear(3, 4, 2)(m.zeros(5, 3), m.zeros(4, 4)), "input batch dimensions"),
        (lambda m: m.nn.Bilinear(0, 4, 2), "in1_features must be > 0, but got (in1_features=0)"),
    ],
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_errors_are_torchs(call, words):
    same_error(call, words)
