"""Functions of PyTorch's top level beneath `nn.functional`, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error, torch_module

RNG = np.random.default_rng(5)
X, Y, Z = RNG.standard_normal((3, 4, 6))
IMAGE, SIGNS = RNG.standard_normal((2, 4, 5, 3)), np.array([1.0, -1.0, 1.0, -1.0])
GRID = RNG.uniform(-1.2, 1.2, (2, 3, 2, 2))
NORMED = None, None, None, None, True, 0.1, 1e-5, True

CASES: dict[str, tuple[Any, ...]] = {
    "native_layer_norm": (lambda m, x, y: m.native_layer_norm(x, (6,), y[0], None, 1e-5)[0], X, Y),
    "native_layer_norm's figures": (
        lambda m, x: (x.sum(), *m.native_layer_norm(x.detach(), (4, 6), None, None, 0.1)), X
    ),
    "native_group_norm": (
        lambda m, x, s: m.native_group_norm(x, s, None, 2, 4, 15, 2, 1e-5), IMAGE.reshape(2, 4, 15),
        SIGNS,
    ),
    "native_dropout in evaluation": (lambda m, x: m.native_dropout(x, 0.5, False)[0], X),
    "kl_div": (lambda m, x, y: (m.kl_div(x, y), m.kl_div(x, y, 2, log_target=True)), X, Y**2),
    "binary_cross_entropy_with_logits": (
        lambda m, x, y: m.binary_cross_entropy_with_logits(x, y, None, m.ones(6).to(x) * 2, 1), X, Y
    ),
    "poisson_nll_loss": (lambda m, x, y: m.poisson_nll_loss(x, y, True, False, 1e-8, 1), X, Y**2),
    "cosine_embedding_loss": (
        lambda m, x, y, s: (
            m.cosine_embedding_loss(x, y, s.detach(), 0.1),
            m.cosine_embedding_loss(x, y, s.detach(), 0.1, 1),
        ),
        X, Y, SIGNS,
    ),
    "hinge_embedding_loss": (
        lambda m, x, s: m.hinge_embedding_loss(x, s.detach()[:, None], 0.5, 2), X, SIGNS
    ),
    "margin_ranking_loss": (
        lambda m, x, y, s: m.margin_ranking_loss(x, y, s.detach()[:, None], 0.2, 1), X, Y, SIGNS
    ),
    "triplet_margin_loss": (lambda m, x, y, z: m.triplet_margin_loss(x, y, z, swap=True), X, Y, Z),
    "ctc_loss": (
        lambda m, x: m.ctc_loss(
            x.reshape(4, 2, 3).log_softmax(2), m.tensor([[1, 2], [2, 2]], device=x.device),
            m.tensor([4, 4]), m.tensor([2, 1]), 0, 1,
        ),
        X,
    ),
    "batch_norm": (lambda m, x: m.batch_norm(x, *NORMED), X),
    "instance_norm": (lambda m, x: m.instance_norm(x, *NORMED), IMAGE),
    "embedding": (
        lambda m, x: (
            m.embedding(x, m.tensor([2, 0, 2], device=x.device)),
            m.embedding(x, m.tensor([2, 0, 2], device=x.device), 0),
        ),
        X,
    ),
    "embedding_renorm_": (
        lambda m, x: m.embedding_renorm_(
            x.detach().clone(), m.tensor([2, 0, 2], device=x.device), 1.0, 2.0
        ),
        X,
    ),
    "dropout": (
        lambda m, x: (
            m.dropout_(x * 1, 0.0, True), m.dropout_(x * 1, 1.0, True),
            m.alpha_dropout_(x * 1, 1.0, True), m.feature_dropout(x, 1.0, True),
            m.feature_dropout_(x * 1, 0.5, False),
            m.feature_alpha_dropout_(x * 1, 0.0, True),
        ),
        X,
    ),
    "grid_sampler": (
        lambda m, x, g: (m.grid_sampler(x, g, 0, 1, True), m.grid_sampler_2d(x, g, 2, 0, False)),
        IMAGE, GRID,
    ),
    "grid_sampler_3d": (
        lambda m, x, y: m.grid_sampler_3d(
            x[None], y[None, None, None, :, :3].sigmoid(), 0, 2, False
        ),
        IMAGE, Y,
    ),
    "affine_grid_generator": (
        lambda m, x: m.affine_grid_generator(x.reshape(4, 2, 3), [4, 1, 2, 2], False), X
    ),
    "constant_pad_nd": (lambda m, x: m.constant_pad_nd(x, [1, -1, 0, 2], 3.0), X),
    "native_channel_shuffle": (lambda m, x: m.native_channel_shuffle(x.detach(), 2), IMAGE),
    "max_pool1d_with_indices": (lambda m, x: m.max_pool1d_with_indices(x[None], 2), X),
    "norm_except_dim": (
        lambda m, x: tuple(m.norm_except_dim(x, p, d) for p, d in ((2, 0), (1, 1), (2, -1))), IMAGE
    ),
    "convolution": (
        lambda m, x, y: m.convolution(
            x, y[:2, :5].reshape(2, 5, 1), None, [1], [1], [1], False, [0], 1
        ),
        IMAGE[0], Y,
    ),
    "convolution, transposed": (
        lambda m, x, y: m.convolution(
            x, y.reshape(4, 3, 1, 2), None, [2, 1], [0, 0], [1, 1], True, [0, 0], 1
        ),
        IMAGE, Y,
    ),
    "conv_tbc": (
        lambda m, x, y, b: m.conv_tbc(x.reshape(3, 2, 4), y.reshape(3, 4, 2), b[:2], 1), X, Y, SIGNS
    ),
    "i0_": (lambda m, x: m.i0_(x * 1), X),
    "a scatter of nothing": (
        lambda m, x: m.zeros(2, dtype=x.dtype, device=x.device).scatter_reduce(
            0, m.zeros(0, dtype=m.int64, device=x.device), x[:0], "sum"
        ),
        X[0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str, device: str) -> None:
    function, *arrays = CASES[name]
    order = 1 if "grid_sampler" in name or name == "ctc_loss" else 2
    agree(function, *arrays, device=device, order=order, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod", "amax"])
@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_segments(reduce: str, initial: float | None, axis: int, device: str) -> None:
    """Of lengths and of offsets, empty ones too, and their gradients."""
    lengths = [[1, 3, 0], [0, 2, 2]] if axis else [3, 0, 1]
    data = RNG.standard_normal((2, 4, 3) if axis else (4, 2)) + 3

    def both(m: Any, x: Any) -> Any:
        given = m.tensor(lengths, device=x.device)
        offsets = m.nn.functional.pad(given.cumsum(-1), [1, 0])
        options = {"axis": axis, "initial": initial}
        by_lengths = m.segment_reduce(x, reduce, lengths=given, **options)
        return by_lengths.nan_to_num(), m.segment_reduce(x, reduce, offsets=offsets, **options)

    agree(both, data, device=device, order=1)


@pytest.mark.parametrize("reduce", ["max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 1.0])
@pytest.mark.parametrize(
    "data",
    [[1.0, 2, 3, np.nan, 4, 5], [1.0, 1, 0, 0, 2, 2], [1.0, 2, 3, np.nan, np.nan, 0]],
    ids=str,
)
def test_gradients_of_segments_pass_what_is_no_number_and_the_initial_value(
    reduce: str, initial: float | None, data: list[float], device: str
) -> None:
    def gradient(m: Any, device: str) -> Any:
        x = m.tensor(data, device=device, requires_grad=True)
        lengths = m.tensor([1, 2, 0, 3], device=device)
        y = m.segment_reduce(x, reduce, lengths=lengths, axis=-1, initial=initial)
        (y * m.arange(1.0, 5.0, device=device)).sum().backward()
        return y.tolist(), x.grad.tolist()

    for ours, theirs in zip(gradient(lucid_gpu, device), gradient(torch_module(), "cpu")):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


SEGMENTS_REFUSED = {
    "another": ("mode", [3], "reduce argument"),
    "too short": ("sum", [2], "sum to"),
    "negative": ("sum", [-1, 4], "negative value"),
    "none": ("sum", None, "must be defined"),
}


@pytest.mark.parametrize("name", SEGMENTS_REFUSED)
def test_segments_that_are_refused(name: str) -> None:
    reduce, lengths, words = SEGMENTS_REFUSED[name]

    def reduced(m: Any) -> Any:
        given = lengths if lengths is None else m.tensor(lengths)
        return m.segment_reduce(m.ones(3, 2), reduce, lengths=given)

    same_error(reduced, words)
    same_error(lambda m: m.segment_reduce(m.ones(3).long(), "sum", lengths=m.tensor([3])))


def test_dropout_in_place_drops() -> None:
    for name in ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"):
        x = lucid_gpu.ones(40, 50)
        assert getattr(lucid_gpu, name)(x, 0.5, True) is x
        assert 0.2 < (x == 1).logical_not().double().mean() <= 1


def test_native_dropout_says_where_it_kept_elements(device: str) -> None:
    result, mask = lucid_gpu.native_dropout(lucid_gpu.ones(400, device=device), 0.25, None)
    assert mask.dtype is lucid_gpu.bool and 250 < int(mask.sum()) < 350
    expected = mask.to(lucid_gpu.float32) / 0.75
    assert lucid_gpu.allclose(result, expected)
