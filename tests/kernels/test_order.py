"""Blocks, warps and lanes in three orders: every family gives the same bits in each.

No family adds floats by atomics, so that none is excepted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.core.program import forget
from lucid_gpu.device import CPU
from lucid_gpu.kernels import (
    attention,
    batch_norm,
    bounds,
    cross_entropy,
    cumsum,
    index_add,
    layer_norm,
    multi_tensor,
    pooling,
    softmax,
)
from lucid_gpu.kernels.im2col import IMAGE_FIRST, IMAGE_LAST, ROW_FIRST, col2im, im2col
from lucid_gpu.kernels.windows import Frame, Window
from lucid_gpu.nn import functional as F
from tests.fusion.plans import needs_compiler
from tests.kernels.test_block import reduced
from tests.slow import slow_but

pytestmark = needs_compiler

ORDERS = ["reversed", "5"]
CASES: dict[str, Callable[[], list[Any]]] = {}


def case(*settings: Any) -> Callable[[Callable[..., list[Any]]], Callable[..., list[Any]]]:
    """Add a function to the cases, once for each setting."""

    def add(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        for setting in settings:
            CASES[f"{function.__name__} {setting}"] = functools.partial(function, *setting)
        return function

    return add


def normal(*shape: int, kind: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


@case((96,), (1024,))
def reductions_of_a_block(threads: int) -> list[Any]:
    return [reduced(normal(3 * threads), threads)]


@case(((3, 1023), 1), ((1, 20_000), 1), ((70, 10), 1), ((2, 600, 3), 1), ((33, 40), 0))
def softmax_and_its_gradient(shape: Any, axis: int) -> list[Any]:
    y = softmax.forward.cuda_c(normal(*shape), axis, False)
    return [y, softmax.backward.cuda_c(y, normal(*shape, seed=1), axis, False)]


@case(((1000, 10),), ((2, 1025),), ((2, 70, 3, 4),), ((50, 6),))
def cross_entropy_and_its_gradient(shape: Any) -> list[Any]:
    target = np.random.default_rng(0).integers(0, shape[1], (shape[0], *shape[2:]))
    weight = np.random.default_rng(1).uniform(0.5, 2, shape[1]).astype(np.float32)
    how = cross_entropy.Settings(weight, -100, 0.1, "mean")
    loss, noted = cross_entropy.losses.cuda_c(normal(*shape), target, how)
    g = np.asarray(1.7, np.float32)
    gradient = cross_entropy.gradient.cuda_c(normal(*shape), target, noted, g, how)
    at_once = cross_entropy.losses.cuda_c(normal(*shape), target, how._replace(differentiated=True))
    return [loss, gradient, at_once[0], at_once[1].ready]


@case(((70, 128), False), ((40, 64), True), ((5, 1025), False), ((3, 8192), True))
def norms_of_rows(shape: Any, rms: bool) -> list[Any]:
    x, g, w, b = (normal(*s, seed=i) for i, s in enumerate((shape, shape, shape[1:], shape[1:])))
    y, known = layer_norm.normalized.cuda_c(x, w, b, 1e-5, rms)
    return [y, *layer_norm.gradients.cuda_c(x, g, w, known, layer_norm.Wanted(True, True, True))]


@case(((500, 3),), ((50, 3, 40),), ((60, 2, 5),), ((2, 70, 9),))
def figures_of_channels(shape: Any) -> list[Any]:
    return list(batch_norm.statistics(normal(*shape), CPU))


@case(((3, 33), 1), ((2, 1025), 1), ((1, 2**14 + 3), 1), ((1025, 3), 0), ((2, 700, 4), 1))
def running_sums(shape: Any, dim: int) -> list[Any]:
    return [cumsum.cumsum(normal(*shape), dim, dt.float32, CPU, reverse) for reverse in (0, 1)]


@case((1, 1023, 40, 4), (3, 1025, 2000, 2), (1, 2049, 3, 1), (2, 64, 4, 33), (1, 40, 50, 300))
def sums_at_an_index(outer: int, count: int, rows: int, columns: int) -> list[Any]:
    found = []
    for power in (1, 8):  # rows alike, and a few that take the most
        keys = (np.random.default_rng(power).random(count) ** power * rows).astype(np.int64)
        out = normal(outer, rows, columns)
        index_add.index_add(out, keys, normal(outer, count, columns, seed=1), CPU)
        found.append(out)
    return found


@case(("float32", False, ""), ("float16", False, ""), ("bfloat16", True, ""),
      ("float32", False, "rules"), ("bfloat16", True, "rules"), ("float32", True, ""),
      ("float32", True, "rules"), ("bfloat16", True, "", 64))  # fmt: skip
def attention_and_its_gradients(
    name: str, tensor_cores: bool, more: str, columns: int = 32
) -> list[Any]:
    rules = attention.Rules(0.2, True)
    if more:
        mask = np.broadcast_to(normal(4, 33, 72) < 1, (2, 4, 33, 72))
        rules = attention.Rules(0.2, mask=mask, dropout=attention.Dropout(0.3, 1, 2))
    kept, matmul = attention.has_tensor_cores, lucid_gpu.backends.cuda.matmul
    attention.has_tensor_cores = lambda _: tensor_cores
    matmul.allow_tf32 = True
    attention.setting.wgmma = columns == 64
    try:
        d = dt.BY_NAME[name]
        q, g = (normal(2, 4, 33, columns, kind=d.numpy, seed=i) for i in range(2))
        k, v = (normal(2, 2, 72, columns, kind=d.numpy, seed=i) for i in range(2, 4))
        out, lse = attention.forward(q, k, v, rules, d, CPU)
        return [out, lse, *attention.backward((q, k, v, out, lse), g, rules, d, CPU)]
    finally:
        attention.has_tensor_cores = kept
        matmul.allow_tf32 = attention.setting.wgmma = False


@case(((2, 3, 7, 6), Window((3, 3), (1, 1), (1, 1))), ((1, 2, 23, 19), Window((3, 2), (2, 1))))
def windows(shape: Any, window: Window) -> list[Any]:
    frame, x = Frame(shape, window), normal(*shape)
    y, places = pooling.max_pool(x, frame)
    mean, g = pooling.avg_pool(x, frame, True, 0), normal(*y.shape, seed=1)
    found = [y, places, mean, pooling.max_pool_bwd(g, places, frame)]
    found += [pooling.max_pool_take(x, places, frame), pooling.avg_pool_bwd(g, frame, True, 0)]
    for order in (IMAGE_FIRST, ROW_FIRST, IMAGE_LAST):
        columns = im2col(x, frame, order)
        found += [columns, col2im(columns, frame, order)]
    return found


@case((1.0,), (2.0,), (np.inf,))
def norms_of_many_arrays(order: float) -> list[Any]:
    arrays = [normal(n) for n in (1, 33, 1025, 8193, 20_000)]
    norm = multi_tensor.total_norm(arrays, order, dt.float32, CPU)
    multi_tensor.clip_to_norm(arrays, norm, 0.5, CPU)
    return [norm, *arrays]


@case(((5000,),), ((70, 90),), ((3, 40, 50),), ((3000, 3),))
def fused_reductions(shape: Any) -> list[Any]:
    array, found = normal(*shape), []
    for axis in (None, *range(len(shape))):
        for name in ("sum", "mean", "amax", "argmax", "var", "prod", "logsumexp", "any"):
            x = lucid_gpu.tensor(array) * 2
            if axis is not None:
                found.append(getattr(x, name)(axis))
            elif name != "logsumexp":
                found.append(getattr(x, name)())
    return [x.numpy() for x in found]


@case(((70, 90),), ((3, 40, 50),))
def turned_operands(shape: Any) -> list[Any]:
    x, y = lucid_gpu.tensor(normal(*shape)), lucid_gpu.tensor(normal(*shape[:-2], *shape[:-3:-1]))
    return [(x.mT * y + x.mT[..., :1]).numpy()]


@case(((3, 5000), 1), ((300, 200), 1), ((5000, 3), 0))
def two_sums_in_one_kernel(shape: Any, axis: int) -> list[Any]:
    x = lucid_gpu.tensor(normal(*shape)) * 2
    return [(x.sum(axis) + (x * x).sum(axis)).numpy()]


@case((2,), (40,))
def sums_over_many_blocks(columns: int) -> list[Any]:
    """Each block leaves its share, and whichever comes last adds them."""
    x = lucid_gpu.tensor(normal(20_000, columns))
    both = x.sum(0) / (x * x).sum(0).sqrt()
    return [t.numpy() for t in (both, x.sum(), x.max(0).indices, (x > 4).any(0))]


@case(())
def a_step() -> list[Any]:
    """Elementwise kernels, gradients of what is broadcast, random numbers, an optimizer."""
    lucid_gpu.manual_seed(3)
    x = lucid_gpu.tensor(normal(70, 33))
    weight, bias = (lucid_gpu.tensor(normal(*s), requires_grad=True) for s in ((33,), (70, 1)))
    optimizer = lucid_gpu.optim.Adam([weight, bias], 0.1)
    for _ in range(2):
        y = F.dropout((x * weight + bias).tanh(), 0.25) + lucid_gpu.rand(70, 33)
        loss = F.batch_norm(y.T[:, 1:], None, None, training=True).exp().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = [y, loss, weight, bias, weight.grad, bias.grad]
    return [t.detach().numpy() for t in found]


def bits(name: str) -> list[tuple[Any, ...]]:
    forget()
    return [(a.dtype, a.shape, a.tobytes()) for a in map(np.asarray, CASES[name]())]


FIRST = {name.partition(" ")[0]: name for name in reversed(CASES)}


@pytest.mark.parametrize("name", slow_but(CASES, *FIRST.values()))
def test_every_order_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    with lucid_gpu.profiler.record() as run:
        wanted = bits(name)
    assert run.kernels
    for order in ORDERS:
        monkeypatch.setenv("LUCID_HOST_ORDER", order)
        assert bits(name) == wanted, order


@pytest.mark.parametrize("order", ["", *ORDERS])
def test_of_several_positions_outside_one_is_told(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever thread comes last: the one result that depends on the order."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    monkeypatch.setenv("LUCID_HOST_ORDER", order)
    index = np.zeros(1000, np.int64)
    index[[3, 40, 900]] = 7, 8, 9
    with pytest.raises(IndexError, match=r"index [789] is out of bounds for dimension 1 with"):
        bounds.check(index, 5, 1, CPU)
