"""Every family once at 2^20 + 3 elements, where rows, blocks and grids are cut in every way.

CUDA C on the host against NumPy in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.core.program import forget
from lucid_gpu.nn import functional as F
from tests.fusion.plans import needs_compiler

MANY = (1 << 20) + 3

pytestmark = [needs_compiler, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _cuda_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget()
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    yield
    forget()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: Any, wanted: np.ndarray, tolerance: float = 2e-5) -> None:
    found = found.detach().numpy().astype(np.float64)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * max(np.abs(wanted).max(), 1e-30)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_elementwise_with_its_gradient() -> None:
    array = normal(MANY)
    x = lucid_gpu.tensor(array, requires_grad=True)
    y = (x * 2).tanh()
    y.backward(lucid_gpu.ones(MANY))
    close(y, np.tanh(2.0 * array.astype(np.float64)))
    close(x.grad, 2 * (1 - np.tanh(2.0 * array.astype(np.float64)) ** 2))


@pytest.mark.parametrize("shape", [(1, MANY), (MANY, 1), (MANY,), (3, MANY // 3)])
def test_reductions(shape: tuple[int, ...]) -> None:
    array = normal(*shape)
    x, wide = lucid_gpu.tensor(array), array.astype(np.float64)
    for axis in range(len(shape)):
        size = np.abs(wide).sum(axis).max()
        found = x.sum(axis).numpy()
        assert np.abs(found - wide.sum(axis)).max() <= 1e-6 * size
        np.testing.assert_array_equal(x.amax(axis).numpy(), array.max(axis))
        np.testing.assert_array_equal(x.argmax(axis).numpy(), array.argmax(axis))
        if shape[axis] > 1:
            close(x.var(axis, correction=0), wide.var(axis), 1e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(axis: int) -> None:
    array = normal(*((1, MANY) if axis else (MANY, 1)))
    x = lucid_gpu.tensor(array, requires_grad=True)
    y = x.softmax(axis) if hasattr(x, "softmax") else F.softmax(x, axis)
    wanted = softmax(array, axis)
    close(y, wanted, 1e-4)
    g = normal(*array.shape, seed=1)
    y.backward(lucid_gpu.tensor(g))
    close(x.grad, wanted * (g - (g * wanted).sum(axis, keepdims=True)), 1e-4)


def test_cross_entropy() -> None:
    array = normal(2, MANY)
    x = lucid_gpu.tensor(array, requires_grad=True)
    loss = F.cross_entropy(x, lucid_gpu.tensor([5, MANY - 1]))
    loss.backward()
    shares = softmax(array, 1)
    close(loss, -np.log(shares[[0, 1], [5, MANY - 1]]).mean())
    shares[[0, 1], [5, MANY - 1]] -= 1
    close(x.grad, shares / 2)


@pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm])
def test_norms_of_a_row(norm: Any) -> None:
    array = normal(2, MANY)
    x = lucid_gpu.tensor(array, requires_grad=True)
    y = norm(x, (MANY,))
    wide = array.astype(np.float64)
    if norm is F.layer_norm:
        wide = wide - wide.mean(1, keepdims=True)
        eps = 1e-5
    else:
        eps = float(np.finfo(np.float32).eps)
    root = np.sqrt((wide * wide).mean(1, keepdims=True) + eps)
    close(y, wide / root, 1e-4)
    g = normal(*array.shape, seed=1)
    y.backward(lucid_gpu.tensor(g))
    unit = wide / root
    apart = g - unit * (g * unit).mean(1, keepdims=True)
    if norm is F.layer_norm:
        apart = apart - g.mean(1, keepdims=True)
    close(x.grad, apart / root, 1e-4)


def test_batch_norm() -> None:
    array = normal(MANY, 2)
    x = lucid_gpu.tensor(array, requires_grad=True)
    y = F.batch_norm(x, None, None, training=True)
    wide = array.astype(np.float64)
    close(y, (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5), 1e-4)


def test_cumsum() -> None:
    array = normal(MANY)
    for dim, shape in ((0, (MANY,)), (0, (MANY, 1)), (1, (1, MANY))):
        found = lucid_gpu.tensor(array.reshape(shape)).cumsum(dim)
        wanted = array.astype(np.float64).reshape(shape).cumsum(dim)
        close(found, wanted, 1e-4)


def test_index_add_and_embedding() -> None:
    index = np.random.default_rng(1).integers(0, 7, MANY)
    values = normal(MANY, 1)
    total = lucid_gpu.zeros(7, 1).index_add(0, lucid_gpu.tensor(index), lucid_gpu.tensor(values))
    wanted = np.bincount(index, values[:, 0].astype(np.float64), 7)[:, None]
    close(total, wanted, 1e-4)
    weight = lucid_gpu.ones(7, 1, requires_grad=True)
    F.embedding(lucid_gpu.tensor(index), weight).backward(lucid_gpu.tensor(values))
    close(weight.grad, wanted, 1e-4)


def test_random_numbers_are_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    lucid_gpu.manual_seed(3)
    here = lucid_gpu.rand(MANY).numpy()
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", False)
    forget()
    lucid_gpu.manual_seed(3)
    np.testing.assert_array_equal(here, lucid_gpu.rand(MANY).numpy())


def test_dropout_masks_alike_both_ways() -> None:
    x = lucid_gpu.ones(MANY, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.backward(lucid_gpu.ones(MANY))
    kept = y.detach().numpy()
    np.testing.assert_array_equal(x.grad.numpy(), kept)
    assert abs((kept == 0).mean() - 0.25) < 0.002


def test_windows() -> None:
    array = normal(1, 1, MANY)
    x = lucid_gpu.tensor(array, requires_grad=True)
    y = F.max_pool1d(x, 3, 2)
    wanted = np.lib.stride_tricks.sliding_window_view(array, 3, -1)[..., ::2, :].max(-1)
    np.testing.assert_array_equal(y.detach().numpy(), wanted)
    y.sum().backward()
    assert x.grad.sum().item() == wanted.size
    weight = lucid_gpu.tensor(normal(1, 1, 5))
    close(
        F.conv1d(x, weight, padding=2)[0, 0],
        np.correlate(array[0, 0].astype(np.float64), weight.numpy()[0, 0], "same"),
    )


def test_the_norm_of_gradients() -> None:
    p = lucid_gpu.zeros(MANY, requires_grad=True)
    p.grad = lucid_gpu.tensor(normal(MANY))
    size = np.linalg.norm(p.grad.numpy().astype(np.float64))
    found = lucid_gpu.nn.utils.clip_grad_norm_([p], 1.0)
    assert abs(found.item() / size - 1) < 1e-6
    assert abs(np.linalg.norm(p.grad.numpy().astype(np.float64)) - 1) < 1e-5
