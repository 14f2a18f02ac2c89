"""Softmax and classification losses against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal
CLASSES = np.array([0, 3, 2, 3, 1])
PIXELS = np.array([[0, 3], [2, -100], [1, 1]])
REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_agrees_with_torch(name, dim, device):
    for x in (normal((3, 4, 5)), normal((5, 4, 3)).T[:, ::2], normal((3, 4, 5)) * 1000):
        agree(lambda m, x: getattr(m.nn.functional, name)(x, dim), x, device=device)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_as_a_method(name, device):
    x = normal((3, 4))
    agree(lambda m, x: getattr(x, name)(-1), x, device=device)
    agree(lambda m, x: getattr(x.float(), name)(0, m.float64), x, device=device)
    agree(lambda m, x: getattr(m, name)(x, dim=1, dtype=m.float32), x, device=device)
    same_error(lambda m: getattr(m.ones(2), name)(), "missing 1 required positional argument")
    same_error(lambda m: getattr(m.ones(2), name)(0.0), "must be int, not float")


def test_infinite_scores(device):
    inf = float("inf")
    x = np.array([[0.0, -inf], [-inf, -inf], [inf, 0.0], [np.nan, 0.0]])
    agree(lambda m, x: m.nn.functional.softmax(x, 1), x, order=0, device=device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("x", "target", "ignored"),
    [
        (normal((5, 4)), CLASSES, -100),
        (normal((5, 4)), CLASSES, 3),
        (normal((3, 4, 2)), PIXELS, -100),
        (normal((4, 10))[:, ::2].T, CLASSES, -100),
        (normal(4), np.array(2), -100),
    ],
)
def test_cross_entropy_agrees_with_torch(
    x, target, ignored, weighted, smoothing, reduction, device
):
    settings = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": ignored}

    def loss(m, x, target, weight):
        weight = weight.detach() if weighted else None
        return m.nn.functional.cross_entropy(x, target, weight, **settings)

    agree(loss, x, target, np.abs(normal(4)), device=device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_with_probabilities_agrees_with_torch(reduction, smoothing, device):
    def loss(m, x, target, weight):
        return m.nn.functional.cross_entropy(
            x,
            m.nn.functional.softmax(target, 1),
            weight.detach(),
            reduction=reduction,
            label_smoothing=smoothing,
        )

    agree(loss, normal((5, 4)), normal((5, 4)), np.abs(normal(4)), device=device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_agrees_with_torch(reduction, device):
    def loss(m, x, target):
        return m.nn.functional.nll_loss(x, target, reduction=reduction)

    agree(loss, normal((5, 4)), CLASSES, device=device)
    agree(loss, normal((3, 4, 2)), PIXELS, device=device)


def test_everything_ignored_is_nan(device):
    agree(
        lambda m, x, t: m.nn.functional.cross_entropy(x, t, ignore_index=0),
        normal((2, 3)),
        np.zeros(2, np.int64),
        order=0,
        device=device,
    )


def test_ignored_scores_may_be_infinite():
    x = lucid_gpu.tensor([[float("inf"), 0.0], [1.0, 2.0]], requires_grad=True)
    loss = F.nll_loss(x, lucid_gpu.tensor([-100, 1]))
    loss.backward()
    assert loss.item() == -2.0
    assert x.grad.tolist() == [[0, 0], [0, -1]]


def test_gradient_is_softmax_minus_onehot():
    x = lucid_gpu.tensor(normal((5, 4)), requires_grad=True)
    F.cross_entropy(x, lucid_gpu.tensor(CLASSES), reduction="sum").backward()
    expected = F.softmax(x.detach(), 1).numpy() - np.eye(4)[CLASSES]
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.softmax(x, 1),
        lambda x: F.log_softmax(x, 0),
        lambda x: F.cross_entropy(x, lucid_gpu.tensor([1, 0]), label_smoothing=0.2),
    ],
)
def test_first_and_second_gradients(function):
    x = lucid_gpu.tensor(normal((2, 3)), requires_grad=True)
    assert gradcheck(function, (x,))
    assert gradgradcheck(function, (x,))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda m: m.nn.functional.cross_entropy(m.zeros(2, 3), m.tensor([0, 3])),
            "Target 3 is out of bounds",
        ),
        (
            lambda m: m.nn.functional.cross_entropy(m.zeros(2, 3), m.tensor([0, 1]), reduction="x"),
            "x is not a valid value for reduction",
        ),
        (
            lambda m: m.nn.functional.cross_entropy(
                m.zeros(2, 3), m.tensor([0, 1]), label_smoothing=1.5
            ),
            "label_smoothing must be between 0.0 and 1.0. Got: 1.5",
        ),
        (
            lambda m: m.nn.functional.nll_loss(m.zeros(2, 3), m.zeros(2)),
            "expected target dtype to be Long or Byte, but got",
        ),
        (lambda m: m.nn.functional.softmax(m.tensor([1, 2]), 0), "not implemented for"),
        *(
            (
                lambda m, loss=loss: getattr(m.nn.functional, loss)(
                    m.zeros(2, 3), m.tensor([0, 1]), m.ones(2)
                ),
                "weight tensor should be defined either for all 3 classes or no classes but got "
                "weight tensor of shape: [2]",
            )
            for loss in ("cross_entropy", "nll_loss")
        ),
        (
            lambda m: m.nn.functional.cross_entropy(m.zeros(2, 3), [0, 1]),
            "cross_entropy_loss(): argument 'target' (position 2) must be Tensor, not list",
        ),
        (
            lambda m: m.nn.functional.cross_entropy(m.zeros(2, 3), m.ones(2, 3), ignore_index=1),
            "ignore_index is not supported for floating point target",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_a_target_that_is_no_class(device):
    """On a GPU the error comes where the program waits, and the process goes on."""
    x = lucid_gpu.zeros(3, 4, device=device)
    wrong = lucid_gpu.tensor([0, 7, 1], device=device)
    with pytest.raises(IndexError, match="Target 7 is out of bounds: the input .*has 4 classes"):
        F.cross_entropy(x, wrong).item()
    right = F.cross_entropy(x, wrong.clamp(max=3))
    assert right.item() == pytest.approx(np.log(4))


def test_wrong_batch_size_names_both():
    sentence = r"input batch_size \(2\) to match target batch_size \(3\)"
    with pytest.raises(ValueError, match=sentence):
        F.cross_entropy(lucid_gpu.zeros(2, 3), lucid_gpu.tensor([0, 1, 2]))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_of_nothing_has_second_derivatives(name):
    x = lucid_gpu.ones(0, 3, requires_grad=True)
    y = getattr(lucid_gpu.nn.functional, name)(x, 1)
    (g,) = lucid_gpu.autograd.grad(y, x, lucid_gpu.ones(0, 3), create_graph=True)
    g.sum().backward()
    assert x.grad.shape == (0, 3)
