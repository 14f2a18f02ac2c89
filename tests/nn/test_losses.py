"""Losses against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import agree, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
CLASSES = np.array([0, 3, 2, 3, 1])
WEIGHT = np.abs(normal(4))


def weight_of(m, device):
    return m.tensor(WEIGHT).to("cpu" if m is torch_module() else device)


# loss, its target
LOSSES = {
    "MSELoss": (lambda m, d, r: m.nn.MSELoss(reduction=r), normal((5, 4))),
    "L1Loss": (lambda m, d, r: m.nn.L1Loss(reduction=r), normal((5, 4))),
    "NLLLoss": (
        lambda m, d, r: m.nn.NLLLoss(weight_of(m, d), ignore_index=2, reduction=r),
        CLASSES,
    ),
    "CrossEntropyLoss": (
        lambda m, d, r: m.nn.CrossEntropyLoss(
            weight_of(m, d), ignore_index=1, reduction=r, label_smoothing=0.1
        ),
        CLASSES,
    ),
    "BCEWithLogitsLoss": (
        lambda m, d, r: m.nn.BCEWithLogitsLoss(reduction=r),
        np.random.default_rng(1).random((5, 4)),
    ),
    "BCEWithLogitsLoss, weights": (
        lambda m, d, r: m.nn.BCEWithLogitsLoss(
            weight_of(m, d), reduction=r, pos_weight=weight_of(m, d) * 2
        ),
        np.random.default_rng(1).random((5, 4)),
    ),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_agrees_with_torch(name, reduction, device):
    make, target = LOSSES[name]
    agree(lambda m, x, t: make(m, device, reduction)(x, t), normal((5, 4)), target, device=device)


@pytest.mark.parametrize("flags", [(None, False), (False, None), (True, None), (True, True)])
def test_older_flags_mean_what_they_did(flags, device):
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
        agree(
            lambda m, x, t: (
                m.nn.MSELoss(*flags)(x, t),
                m.nn.functional.l1_loss(x, t, *flags),
            ),
            normal((2, 3)),
            normal((2, 3)),
            device=device,
        )


def test_weights_are_buffers():
    loss = nn.CrossEntropyLoss(weight=lucid_gpu.ones(3))
    assert list(loss.state_dict()) == ["weight"]
    assert repr(loss) == "CrossEntropyLoss()"


def test_extreme_scores_stay_finite(device):
    x = lucid_gpu.tensor([[1000.0, -1000.0]], requires_grad=True)
    loss = nn.functional.binary_cross_entropy_with_logits(x, lucid_gpu.tensor([[0.0, 1.0]]))
    loss.backward()
    assert loss.item() == 1000
    assert x.grad.tolist() == [[0.5, -0.5]]


def test_broadcasting_targets_warn():
    with pytest.warns(UserWarning, match="Using a target size .* different to the input size"):
        nn.functional.mse_loss(lucid_gpu.zeros(2, 1), lucid_gpu.zeros(2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda m: m.nn.functional.mse_loss(m.zeros(1), m.zeros(1), reduction="all"),
            "all is not a valid value for reduction",
        ),
        (
            lambda m: m.nn.BCEWithLogitsLoss()(m.zeros(2), m.zeros(3)),
            "must be the same as input size",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)
