"""Plans over arrays whose dimensions lie in memory in another order."""

from __future__ import annotations

import itertools
import math
import os
import random as random_numbers

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.core.value import order_of
from lucid_gpu.fusion import memory_order
from lucid_gpu.fusion.blocked import Executable

from ..oracle import array_of, torch_module
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
    first = y.detach().cpu().numpy()  # realized: from now on the gradient reads it
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


def test_views_of_a_result_follow_it_into_row_major_order():
    """Strides and views by strides are PyTorch's, also where other views are alive."""
    torch = torch_module()
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8))
    w = np.random.default_rng(1).standard_normal((4, 3, 3, 3))

    def strides(m):
        y = m.nn.functional.conv2d(m.tensor(x), m.tensor(w))
        views = [y.transpose(1, 2), y[:, 1], y.detach(), y.unsqueeze(0), y.squeeze()]
        views.append(views[0][1:])
        assert not y.permute(1, 0, 2, 3).is_contiguous()
        flat = y.as_strided((4, 7), (40, 1)).numpy()
        views[1][0, 0, 0] = 7
        return flat, [tuple(v.stride()) for v in views], y.view(-1).numpy()

    ours, theirs = strides(lucid_gpu), strides(torch)
    np.testing.assert_allclose(ours[0], theirs[0], 1e-9)
    assert ours[1] == theirs[1]
    np.testing.assert_allclose(ours[2], theirs[2], 1e-9)


@pytest.mark.parametrize("look", ["view", "stride", "data_ptr"])
def test_a_result_put_in_order_is_still_told_of_writes(look):
    x, w = lucid_gpu.randn(2, 3, 8, 8, requires_grad=True), lucid_gpu.randn(4, 3, 3, 3)
    y = lucid_gpu.nn.functional.conv2d(x, w)
    z = y * y
    y.view(-1) if look == "view" else getattr(y, look)()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()


# --- strides of results, as PyTorch's -------------------------------------------------------------

EXAMPLES = float(os.environ.get("LUCID_TEST_EXAMPLES", "1"))
SHAPES = [(3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 1, 3, 5), (2, 2, 2), (2, 3, 1, 1), (3, 3)]
UNARY = ("exp", "tanh", "neg", "abs", "sigmoid", "sin")
BINARY = ("add", "mul", "sub", "maximum")


def strided_leaf(m, shape, kind, order, short, seed, device):
    """A tensor of a shape that lies in memory in some way."""

    def filled(extents):
        return m.tensor(np.random.default_rng(seed).standard_normal(extents), device=device)

    back = sorted(range(len(shape)), key=order.__getitem__)
    if kind == "permuted":
        return filled([shape[i] for i in order]).permute(back)
    if kind == "gaps":
        doubled = [shape[i] for i in order[:-1]] + [2 * shape[order[-1]]]
        return filled(doubled)[..., ::2].permute(back)
    if kind == "expanded":
        return filled([1, *shape[1:]]).expand(shape)
    if kind == "broadcast":
        extents = [n if keep else 1 for n, keep in zip(shape, short)]
        return filled([extents[i] for i in order]).permute(back)
    if kind == "channels_last" and len(shape) == 4:
        return filled(shape).contiguous(memory_format=m.channels_last)
    return filled(shape)


STEPS = {
    "unary": lambda m, d, name, a, b, c: getattr(m, UNARY[name % 6])(a),
    "binary": lambda m, d, name, a, b, c: getattr(m, BINARY[name % 4])(a, b),
    "number": lambda m, d, name, a, b, c: a * 2.5 + 1,
    "where": lambda m, d, name, a, b, c: m.where(a > 0, b, c),
    "cast": lambda m, d, name, a, b, c: a.float().double() + (a > b).double(),
    "clone": lambda m, d, name, a, b, c: a.clone(),
    "inplace": lambda m, d, name, a, b, c: a.clone().mul_(2).add_(a),
    "copy": lambda m, d, name, a, b, c: m.empty_like(a).copy_(a * 2),
    "like": lambda m, d, name, a, b, c: m.zeros_like(a) + b,
    "lerp": lambda m, d, name, a, b, c: m.lerp(a, b, 0.3),
    "contiguous": lambda m, d, name, a, b, c: a.contiguous(),
    "mean": lambda m, d, name, a, b, c: a - a.mean(d % a.ndim, keepdim=True),
    "square": lambda m, d, name, a, b, c: a + a.mT if a.shape[-1] == a.shape[-2] else a * 2,
    "detached": lambda m, d, name, a, b, c: a.detach() * b,
}


def outcome_of_steps(m, seed, device):
    """Values of a random program over random leaves, and the leaves' gradients."""
    r = random_numbers.Random(seed)
    shape = r.choice(SHAPES)
    kinds = ("permuted", "permuted", "gaps", "expanded", "broadcast", "channels_last", "row-major")
    leaves = []
    for _ in range(r.randint(1, 3)):
        order = r.sample(range(len(shape)), len(shape))
        short = [r.random() < 0.6 for _ in shape]
        made = strided_leaf(m, shape, r.choice(kinds), order, short, r.randrange(99), device)
        leaves.append(made.clone().requires_grad_() if r.random() < 0.5 else made)
    values = list(leaves)
    for _ in range(r.randint(1, 7)):
        step = STEPS[r.choice(sorted(STEPS))]
        d, name = r.randrange(4), r.randrange(12)
        values.append(step(m, d, name, *[r.choice(values) for _ in range(3)]))
    loss = sum([(v * (i + 1)).sum() for i, v in enumerate(values)])
    if loss.requires_grad:
        loss.backward()
    r.shuffle(values)
    return values + [t.grad for t in leaves if t.requires_grad and t.grad is not None]


def assert_lies_as(found, expected):
    """Values and strides are equal; dimensions of one element lie anywhere."""
    np.testing.assert_allclose(array_of(found), array_of(expected), 1e-6, 1e-6)
    steps = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (found, expected)]
    assert steps[0] == steps[1]
    assert found.is_contiguous() == expected.is_contiguous()


@pytest.mark.parametrize("start", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_results_have_the_strides_of_pytorch_s(device, start):
    torch = torch_module()
    programs = math.ceil((2000 if start else 100) * EXAMPLES)
    for seed in range(start, start + programs):
        expected = outcome_of_steps(torch, seed, "cpu")
        found = outcome_of_steps(lucid_gpu, seed, device)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected):
            assert_lies_as(ours, theirs)


def test_cuda_c_runs_in_the_order_of_the_result(device):
    """No array is copied into another order after a kernel wrote it."""
    x = lucid_gpu.tensor(np.arange(6.0).reshape(2, 3), device=device).t()
    y = x * 2 + 1
    assert order_of(y._expr) == (1, 0)
    assert y.array.T.flags.c_contiguous
    plans = (x * 2 + 1)._expr.program.plans  # of every test that computed the same
    run = plans[y.shape, x.array.strides].executable
    assert type(run) in (memory_order.Ordered, memory_order.OrderedOnGPU)


def test_an_array_that_lies_row_by_row_is_walked_so_whatever_pytorchs_order_is():
    """That of a convolution of one image in channels_last is not walked across."""
    x = lucid_gpu.ones(1, 3, 4, 4).contiguous(memory_format=lucid_gpu.channels_last)
    y = lucid_gpu.nn.functional.conv2d(x, lucid_gpu.ones(3, 3, 3, 3), padding=1)
    assert y.array.flags.c_contiguous and y._expr.program.free == (0, 2, 3, 1)
    z = y * lucid_gpu.ones(3, 1, 1) + 1
    assert z.array.flags.c_contiguous and z.stride() == (48, 1, 12, 3)
