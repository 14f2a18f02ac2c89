"""Pooling against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal

SETTINGS = {
    "halves": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "ceil": {"kernel_size": 2, "stride": 2, "ceil_mode": True},
    "ceil, padded": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    "pairs": {"kernel_size": (3, 2), "stride": (2, 3), "padding": (1, 0), "ceil_mode": True},
    "apart": {"kernel_size": 2, "stride": 3},
}
IMAGES = {
    "numbers": normal((2, 3, 7, 9)),
    "ties": np.round(normal((2, 3, 7, 9))),
    "strided": normal((9, 7, 6, 2)).transpose(3, 2, 1, 0)[:, ::2],
    "no batch": normal((3, 7, 9)),
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("images", IMAGES)
def test_max_agrees_with_torch(settings, images, device):
    agree(
        lambda m, x: m.nn.functional.max_pool2d(x, **SETTINGS[settings]),
        IMAGES[images],
        device=device,
    )


@pytest.mark.parametrize("settings", [*SETTINGS.values(), {"kernel_size": 2, "dilation": 2}])
def test_indices_agree_with_torch(settings, device):
    def pooled(m, x):
        return m.nn.functional.max_pool2d(x, **settings, return_indices=True)

    agree(pooled, IMAGES["ties"], device=device)


@pytest.mark.parametrize("more", [{}, {"count_include_pad": False}, {"divisor_override": 3}])
@pytest.mark.parametrize("settings", SETTINGS)
def test_mean_agrees_with_torch(settings, more, device):
    for images in ("numbers", "strided", "no batch"):
        agree(
            lambda m, x: m.nn.functional.avg_pool2d(x, **SETTINGS[settings], **more),
            IMAGES[images],
            device=device,
        )


@pytest.mark.parametrize(
    "settings", [{"kernel_size": 2}, {"kernel_size": (3,), "stride": 2, "padding": 1}]
)
def test_of_signals_agrees_with_torch(settings, device):
    for signals in (normal((2, 3, 9)), np.round(normal((3, 9)))):
        for more in ({}, {"ceil_mode": True}):
            agree(
                lambda m, x, more=more: m.nn.functional.max_pool1d(x, **settings, **more),
                signals,
                device=device,
            )
            agree(
                lambda m, x, more=more: m.nn.functional.avg_pool1d(x, **settings, **more),
                signals,
                device=device,
            )
        agree(
            lambda m, x: m.nn.functional.max_pool1d(x, **settings, return_indices=True),
            signals,
            order=1,
            device=device,
        )
        agree(
            lambda m, x: m.nn.functional.avg_pool1d(x, **settings, count_include_pad=False),
            signals,
            device=device,
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_agree_with_torch(dtype, device):
    for pool in ("max_pool2d", "avg_pool2d"):

        def pooled(m, x, pool=pool):
            return getattr(m.nn.functional, pool)(x.to(getattr(m, dtype)), 3, 2, 1).float()

        agree(pooled, normal((2, 3, 7, 6)), order=1, rtol=0.02, atol=0.02, device=device)


def test_least_numbers_agree_with_torch(device):
    images = np.full((1, 1, 4, 4), -np.inf)
    agree(
        lambda m, x: m.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True),
        images,
        order=1,
        device=device,
    )


def test_nan_wins(device):
    images = np.array([[[[1.0, np.nan], [3.0, 2.0]]]])
    agree(lambda m, x: m.nn.functional.max_pool2d(x, 2, return_indices=True), images, device=device)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
def test_other_types(dtype):
    x = lucid_gpu.arange(16).reshape(1, 1, 4, 4).to(getattr(lucid_gpu, dtype))
    y = F.max_pool2d(x, 2)
    assert y.dtype is x.dtype
    assert y.float().reshape(-1).tolist() == [5, 7, 13, 15]


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_first_and_second_gradients(pool):
    x = lucid_gpu.tensor(normal((2, 2, 5, 4)), requires_grad=True)
    assert gradcheck(lambda x: pool(x, 3, 2, 1), (x,))
    assert gradgradcheck(lambda x: pool(x, 3, 2, 1), (x,))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.functional.max_pool1d(m.zeros(3), 2), "2D or 3D (batch mode) tensor"),
        (lambda m: m.nn.functional.max_pool2d(m.zeros(1, 2, 3, 3), 5), "size: (2x3x3). Calculated"),
        (lambda m: m.nn.functional.avg_pool2d(m.zeros(1, 2, 3, 3), 5), "Output size is too small"),
        (lambda m: m.nn.functional.avg_pool1d(m.zeros(1, 2, 3), 2, -1), "stride should"),
        (lambda m: m.nn.functional.max_pool2d(m.zeros(1, 1, 4, 4).bool(), 2), "not implemented"),
        (lambda m: m.nn.functional.max_pool2d(m.zeros(2, 2), 2), "3D or 4D (batch mode) tensor"),
        (
            lambda m: m.nn.functional.max_pool2d(m.zeros(1, 1, 4, 4), 2, padding=2),
            "pad should be at most half of effective kernel size",
        ),
        (
            lambda m: m.nn.functional.avg_pool2d(m.zeros(1, 1, 4, 4), 2, divisor_override=0),
            "divisor must be not zero",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_where_the_maxima_are_is_saved_as_a_tensor() -> None:
    x = lucid_gpu.rand(1, 1, 4, 4, requires_grad=True)
    seen = []
    with lucid_gpu.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        y = F.max_pool2d(x, 2)
    assert [t.dtype for t in seen] == [lucid_gpu.uint8]
    y.sum().backward()
    assert x.grad.sum().item() == 4
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        y.sum().backward()


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_channels_taken_apart_give_what_they_give_together(name, device):
    x = normal((2, 48, 90, 90)).astype(np.float32)  # more than a block
    whole, parts = (lucid_gpu.tensor(x, device=device, requires_grad=True) for _ in range(2))
    pool = getattr(F, name)
    y = pool(whole, 3, 2, 1)
    found = lucid_gpu.cat([pool(part, 3, 2, 1) for part in parts.split(6, 1)], 1)
    np.testing.assert_array_equal(y.numpy(force=True), found.numpy(force=True))
    g = lucid_gpu.tensor(normal(tuple(y.shape)).astype(np.float32), device=device)
    y.backward(g)
    found.backward(g)
    np.testing.assert_array_equal(whole.grad.numpy(force=True), parts.grad.numpy(force=True))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_maxima_and_indices_of_a_batch_without_channels(rank):
    x = lucid_gpu.tensor(normal((2, 3, *(4,) * rank)))
    for pool in (getattr(F, f"max_pool{rank}d"), getattr(F, f"adaptive_max_pool{rank}d")):
        alone = [pool(row, 2, return_indices=True) for row in x]
        together = lucid_gpu.vmap(lambda row, pool=pool: pool(row, 2, return_indices=True))(x)
        for i, part in enumerate(together):
            assert lucid_gpu.equal(part, lucid_gpu.stack([a[i] for a in alone]))
