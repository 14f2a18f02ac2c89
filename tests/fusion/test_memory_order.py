"""Plans over arrays whose dimensions lie in memory in another order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.fusion import memory_order
from lucid_gpu.fusion.blocked import Executable

from .plans import leaf, op, planned, random

SHAPE = (2, 3, 4, 5)
ORDERS = [o for o in itertools.permutations(range(4)) if o != (0, 1, 2, 3)]


def laid(shape, order, seed=0):
    """Random numbers whose dimensions lie in memory in ``order``."""
    flat = random([shape[i] for i in order], dt.float32, "positive", seed=seed)
    return flat.transpose(np.argsort(order))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_results_lie_like_the_operands(order):
    x, y = laid(SHAPE, order), laid(SHAPE, order, seed=1)
    for other in (
        y,
        np.broadcast_to(y[:1, :1], SHAPE),
        y[:1],
        y[0, :, :1, :1],
        y[0, 0],
        np.float32(2).reshape(()),
    ):
        plan, arrays, _ = planned([op("mul", leaf(x), leaf(other))], None)
        run = memory_order.executable(plan)
        assert isinstance(run, memory_order.Ordered)
        (found,) = run(arrays, [])
        np.testing.assert_array_equal(found, x * other)
        assert found.strides == x.strides


def test_gaps_do_not_matter():
    x, y = (laid((*SHAPE[:3], 9), (1, 2, 3, 0), seed)[..., 2:7] for seed in (0, 1))
    plan, arrays, _ = planned([op("mul", leaf(x), leaf(y))], None)
    (found,) = memory_order.executable(plan)(arrays, [])
    np.testing.assert_array_equal(found, x * y)
    assert found.transpose(1, 2, 3, 0).flags.c_contiguous


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2, 3), (1, 3), (0, 1, 2, 3)], ids=str)
def test_sums(axes):
    x = laid(SHAPE, (1, 2, 3, 0))
    plan, arrays, _ = planned([op("mul", leaf(x), leaf(x))], axes)
    run = memory_order.executable(plan)
    assert isinstance(run, memory_order.Ordered)
    (found,) = run(arrays, [])
    np.testing.assert_allclose(found, (x * x).sum(axes, keepdims=True), 1e-5)
    assert found.flags.c_contiguous


@pytest.mark.parametrize(
    "x, y",
    [
        (laid(SHAPE, (1, 2, 3, 0)), laid(SHAPE, (1, 0, 2, 3))),
        (laid(SHAPE, (0, 1, 2, 3))[..., ::2], laid(SHAPE, (0, 1, 2, 3))[..., ::2]),
        (laid(SHAPE, (0, 1, 2, 3)), laid(SHAPE, (0, 1, 2, 3))),
    ],
    ids=["two orders", "gaps", "row-major"],
)
def test_where_no_order_is_common_results_are_row_major(x, y):
    plan, arrays, _ = planned([op("add", leaf(x), leaf(y))], None)
    run = memory_order.executable(plan)
    assert type(run) is Executable
    (found,) = run(arrays, [])
    np.testing.assert_array_equal(found, x + y)
    assert found.flags.c_contiguous


def test_gradients_read_outputs_as_they_lie(device):
    """tanh's gradient reads its output, sigmoid's cotangent comes row-major."""
    values = np.linspace(-1, 1, 120, dtype=np.float32).reshape(5, 4, 3, 2)
    x = lucid_gpu.tensor(values, device=device).requires_grad_()
    y = x.permute(3, 2, 1, 0).tanh()
    first = y.detach().cpu().numpy()  # realised: from now on the gradient reads it
    (y.permute(3, 2, 1, 0) * lucid_gpu.tensor(values, device=device)).sum().backward()
    np.testing.assert_allclose(first.transpose(3, 2, 1, 0), np.tanh(values), 1e-6)
    np.testing.assert_allclose(
        x.grad.cpu().numpy(), values * (1 - np.tanh(values) ** 2), 1e-5, 1e-7
    )


def test_a_result_takes_any_view(device):
    """PyTorch's result is row-major, so a script may view it as it likes."""
    x = lucid_gpu.randn(2, 3, 8, 8, device=device)
    y = lucid_gpu.nn.functional.conv2d(x, lucid_gpu.randn(4, 3, 3, 3, device=device))
    for z in (y, (y * 2).tanh()):
        flat = z.clone().cpu().numpy().ravel()
        np.testing.assert_array_equal(z.view(-1).cpu().numpy(), flat)
        assert z.is_contiguous()


def test_shared_results_lie_row_major(device):
    """What was detached, handed out or written in place takes any view, too."""
    x, w = lucid_gpu.randn(9, 3, 8, 8, device=device), lucid_gpu.randn(4, 3, 3, 3, device=device)

    def convolved():
        return lucid_gpu.nn.functional.conv2d(x, w)

    wanted = convolved().cpu().numpy()
    assert convolved().cpu().numpy().flags.c_contiguous
    for y in (convolved(), convolved() * 1):
        z = y.detach()
        z.view(-1)[0] = 5
        assert y.view(-1)[0] == 5
    y = convolved()
    y.mul_(2)
    float(y.sum())
    np.testing.assert_allclose(y.view(-1).cpu().numpy(), 2 * wanted.ravel(), 1e-5)
    y.add_(1)
    np.testing.assert_allclose(y.cpu().numpy(), 2 * wanted + 1, 1e-4)
