"""Convolution layers against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.nn import functional as F
from tests.nn.layers import agrees
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal

LAYERS = {
    "3-D": (lambda m: m.nn.Conv3d(2, 4, 2, groups=2), normal((2, 2, 3, 4, 3))),
    "3-D with all": (
        lambda m: m.nn.Conv3d(2, 3, (2, 1, 3), (1, 2, 1), (1, 0, 2), (2, 1, 2), bias=False),
        normal((9, 2, 4, 3, 4)),
    ),
    "3-D same, no batch": (lambda m: m.nn.Conv3d(2, 2, 3, padding="same"), normal((2, 3, 3, 2))),
    "1-D reflected": (
        lambda m: m.nn.Conv1d(2, 3, 3, padding=2, padding_mode="reflect"),
        normal((2, 2, 5)),
    ),
    "2-D replicated": (
        lambda m: m.nn.Conv2d(2, 3, 3, 2, (1, 2), padding_mode="replicate"),
        normal((2, 2, 4, 5)),
    ),
    "2-D around, same": (
        lambda m: m.nn.Conv2d(2, 3, (2, 3), padding="same", padding_mode="circular"),
        normal((2, 4, 5)),
    ),
    "2-D reflected, valid": (
        lambda m: m.nn.Conv2d(2, 3, 2, padding="valid", padding_mode="reflect"),
        normal((1, 2, 4, 4)),
    ),
    "transposed 1-D": (lambda m: m.nn.ConvTranspose1d(2, 3, 3, 2, 1, 1), normal((2, 2, 4))),
    "transposed 1-D, no batch": (
        lambda m: m.nn.ConvTranspose1d(2, 4, 2, groups=2, bias=False),
        normal((2, 4)),
    ),
    "transposed 2-D": (lambda m: m.nn.ConvTranspose2d(3, 2, 3), normal((6, 3, 4, 3))),
    "transposed 2-D with all": (
        lambda m: m.nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, False, (2, 1)),
        normal((2, 4, 3, 4)),
    ),
    "more output padding than a stride": (
        lambda m: m.nn.ConvTranspose2d(2, 2, 2, 1, 1, (1, 2), dilation=3),
        normal((2, 2, 3, 3)),
    ),
    "transposed 3-D": (
        lambda m: m.nn.ConvTranspose3d(2, 4, (2, 3, 2), 2, (0, 1, 0), (1, 0, 1), groups=2),
        normal((2, 2, 2, 3, 2)),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_agrees_with_torch(name, device):
    make, x = LAYERS[name]
    agrees(make, x, device=device, order=2 if "with all" in name else 1)


def test_output_size(device):
    x = lucid_gpu.tensor(normal((2, 3, 4))).float().to(device)
    layer = lucid_gpu.nn.ConvTranspose1d(3, 2, 3, stride=3).to(device)
    for size in ([12], [13], (2, 2, 14)):
        assert layer(x, output_size=size).shape == (2, 2, size[-1])
    assert layer(x[0], output_size=[13]).shape == (2, 13)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_results_take_any_view(rank, device):
    """PyTorch's are row-major, whatever lies below ours."""
    for make in (lucid_gpu.nn.functional.conv1d, lucid_gpu.nn.functional.conv_transpose1d):
        convolve = getattr(lucid_gpu.nn.functional, make.__name__.replace("1", str(rank)))
        for bias in (None, lucid_gpu.zeros(2, device=device)):
            for batch in ((), (2,), (7,)):
                x = lucid_gpu.rand(*batch, 2, *[4] * rank, device=device)
                y = convolve(x, lucid_gpu.rand(2, 2, *[2] * rank, device=device), bias)
                assert y.view(-1).shape == (y.numel(),)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.Conv2d(3, 4, 3, padding_mode="wide"), "padding_mode must be one of"),
        (lambda m: m.nn.Conv2d(3, 4, 3, 2, "same"), "not supported for strided convolutions"),
        (lambda m: m.nn.ConvTranspose1d(3, 4, 3, padding_mode="reflect"), "ConvTranspose1d"),
        (lambda m: m.nn.ConvTranspose2d(3, 4, 3)(m.zeros(3, 4, 4), (9, 9)), "range from [6, 6]"),
        (lambda m: m.nn.ConvTranspose2d(3, 4, 3)(m.zeros(3, 4, 4), (9,)), "must have 2 or 3 elem"),
        (lambda m: m.nn.ConvTranspose2d(3, 4, 3)(m.zeros(2, 4, 4)), "to have 3 channels, but got"),
        (lambda m: m.nn.ConvTranspose2d(3, 4, 3)(m.zeros(2, 4)), "(batched) input to conv_tran"),
        (
            lambda m: m.nn.ConvTranspose1d(3, 4, 3, 2, output_padding=2)(m.zeros(3, 4)),
            "output padding must be smaller than either stride or dilation",
        ),
        (lambda m: m.nn.ConvTranspose2d(3, 4, 1, padding=3)(m.zeros(3, 4, 4)), "too small"),
        (lambda m: m.nn.Conv3d(3, 4, 3)(m.zeros(3, 4, 2, 4)), "channel: (4 x 2 x 4). Kernel size"),
        (lambda m: m.nn.Conv3d(3, 4, 3)(m.zeros(4, 4, 4)), "4D (unbatched) or 5D (batched) input"),
        (
            lambda m: m.conv_transpose2d(m.zeros(1, 2, 3, 3), m.zeros(2, 1, 2, 2), groups=3),
            "groups",
        ),
        (
            lambda m: m.conv_transpose1d(m.zeros(1, 2, 3), m.zeros(2, 1, 2), m.zeros(3)),
            "expected bias to be 1-dimensional with 1 elements",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


GRADIENTS = {
    1: ((2, 4, 7), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    2: ((2, 3, 5, 4), (2, 3, 2, 3), {"dilation": (2, 1), "padding": (0, 2)}),
    3: ((1, 2, 4, 3, 5), (3, 2, 2, 1, 2), {"stride": (1, 2, 2)}),
}


@pytest.mark.parametrize("rank", GRADIENTS)
def test_gradients_as_functions_agree_with_torch(rank, device):
    size, filters, settings = GRADIENTS[rank]

    def of_input(m, w, x):
        g = getattr(m.nn.functional, f"conv{rank}d")(x, w, None, **settings).detach() ** 2
        return getattr(m.nn.grad, f"conv{rank}d_input")(size, w, g, **settings)

    def of_weight(m, w, x):
        g = getattr(m.nn.functional, f"conv{rank}d")(x, w, None, **settings).detach() ** 2
        return getattr(m.nn.grad, f"conv{rank}d_weight")(x, filters, g, **settings)

    agree(of_input, normal(filters), normal(size), device=device, order=1)
    agree(of_weight, normal(filters), normal(size), device=device, order=1)
    with lucid_gpu.no_grad():
        x = lucid_gpu.ones(size, device=device, requires_grad=True)
        w = lucid_gpu.ones(filters, device=device)
        g = getattr(F, f"conv{rank}d")(x, w, None, **settings)
        assert not getattr(nn.grad, f"conv{rank}d_weight")(x, filters, g, **settings).requires_grad


def test_filters_in_another_order_keep_their_values():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(3, 2, 3), nn.Conv3d(2, 2, 2))
    before = [p.detach().clone() for p in net.parameters()]
    last = lucid_gpu.channels_last
    assert nn.utils.convert_conv2d_weight_memory_format(net, last) is net
    nn.utils.convert_conv3d_weight_memory_format(net, lucid_gpu.channels_last_3d)
    assert all(lucid_gpu.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert net[0].weight.is_contiguous(memory_format=last)
    assert net[:2](lucid_gpu.ones(1, 2, 5, 5)).shape == (1, 2, 5, 5)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("channels", "batch"), [(0, 2), (3, 0)])
def test_gradients_of_nothing(rank, channels, batch):
    for kind in ("Conv", "ConvTranspose"):
        layer = getattr(nn, f"{kind}{rank}d")(channels, 4, 2, stride=2)
        x = lucid_gpu.ones(batch, channels, *[4] * rank, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad.shape == x.shape and layer.weight.grad.shape == layer.weight.shape
