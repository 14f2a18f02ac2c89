"""Programs in which reductions and elementwise ops alternate: what their depth costs.

Counted are the ops, kernels and bytes of one forward and backward pass, beside eager execution.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu as torch
from lucid_gpu import Tensor, fusion, profiler
from tests.fusion.counting import counted


def along_rows_and_columns(h: Tensor, x: Tensor) -> Tensor:
    h = h.abs() + 0.1
    h = h / h.sum(1, keepdim=True)
    return h / h.sum(0, keepdim=True)


def softmax(h: Tensor, x: Tensor) -> Tensor:
    e = (h - h.amax(1, keepdim=True)).exp()
    return e / e.sum(1, keepdim=True) * 4 + x


def layer_norm(h: Tensor, x: Tensor) -> Tensor:
    d = h - h.mean(1, keepdim=True)
    return d / ((d * d).mean(1, keepdim=True) + 1e-5).sqrt()


def residual_layer_norm(h: Tensor, x: Tensor) -> Tensor:
    return layer_norm(h, x).tanh() + x


def unit_rows(h: Tensor, x: Tensor) -> Tensor:
    return h / (h * h).sum(1, keepdim=True).sqrt() + 0.1 * h


def residual_rms_norm(h: Tensor, x: Tensor) -> Tensor:
    scaled = h * (h.square().mean(1, keepdim=True) + 1e-6).rsqrt()
    return h + torch.sigmoid(scaled) * h * 0.1


def by_extremum(h: Tensor, x: Tensor) -> Tensor:
    return h / (1 + h.abs().amax(1, keepdim=True)) + x


def by_norm_of_all(h: Tensor, x: Tensor) -> Tensor:
    return h / (1 + (h * h).sum()) + x


def less_its_mean(h: Tensor, x: Tensor) -> Tensor:
    return (h - h.mean()) * 1.1


def gram_schmidt(h: Tensor, x: Tensor) -> Tensor:
    return h - (h * x).sum(1, keepdim=True) * x / (x * x).sum(1, keepdim=True)


def means_of_both(h: Tensor, x: Tensor) -> Tensor:
    return (h - h.mean(0, keepdim=True)) * (1 + h.mean(1, keepdim=True)).tanh()


def log_sum_exp(h: Tensor, x: Tensor) -> Tensor:
    return h - (h - h.amax(1, keepdim=True)).exp().sum(1, keepdim=True).log() + x


def variance(h: Tensor, x: Tensor) -> Tensor:
    return h / (1 + h.var(1, keepdim=True)) + x


def attention(h: Tensor, x: Tensor) -> Tensor:
    return softmax(h @ h.t() * 0.1, x * 0) @ h * 0.1 + h


# How many ops of eager execution's a round runs at most. They only fall.
ROUNDS: dict[Callable[[Tensor, Tensor], Tensor], float] = {
    along_rows_and_columns: 1.5,
    softmax: 1.3,
    layer_norm: 1.3,
    residual_layer_norm: 1.4,
    unit_rows: 1.5,
    residual_rms_norm: 1.25,
    by_extremum: 1.5,
    by_norm_of_all: 1.6,
    less_its_mean: 1.4,
    gram_schmidt: 1.2,
    means_of_both: 1.3,
    log_sum_exp: 1.35,
    variance: 1.7,
    attention: 1.2,
}


def costs(turn: Callable[[Tensor, Tensor], Tensor], rounds: int) -> tuple[int, int, int]:
    """Return ops, kernels and bytes of a pass forward and back through rounds of a program."""
    start = torch.linspace(-1, 1, 256).reshape(16, 16).sin()

    def step() -> None:
        x = start.clone().requires_grad_()
        h = x * 1.5
        for _ in range(rounds):
            h = turn(h, x)
        (h * h).sum().backward()
        assert x.grad is not None
        x.grad.numpy()

    for _ in range(3):  # numbers that change become arguments
        step()
    with profiler.record() as log:
        step()
    sizes = [k.bytes_read + k.bytes_written for k in log.kernels]
    return sum(len(k.ops) for k in log.kernels), len(log.kernels), sum(sizes)


@pytest.mark.parametrize("turn", ROUNDS, ids=lambda turn: turn.__name__)
def test_depth_costs_no_more_than_eagerly(turn: Callable[[Tensor, Tensor], Tensor]) -> None:
    few, some, many = (costs(turn, rounds) for rounds in (8, 16, 32))
    for less, more in zip((b - a for a, b in zip(few, some)), (b - a for a, b in zip(some, many))):
        assert more <= 1.05 * 2 * less, (few, some, many)  # as much for each round
    with fusion.eager():
        eager = costs(turn, 32)
    ops, kernels, moved = (ours / theirs for ours, theirs in zip(many, eager, strict=True))
    assert ops <= ROUNDS[turn] and kernels < 1 and moved < 1, (many, eager)


def hidden(h: Tensor, x: Tensor) -> Tensor:
    z = (h * 2 + 1).tanh()
    return z / (1 + h.abs().sum(1, keepdim=True))


def straight_through(h: Tensor, x: Tensor) -> Tensor:
    scale = h.abs().mean(1, keepdim=True)
    return h + ((h / scale).round() * scale - h).detach() * 0.1


def masked(h: Tensor, x: Tensor) -> Tensor:
    kept = h > h.mean(0, keepdim=True)
    return torch.where(kept, h, x) / (1 + h.square().sum())


def halved(h: Tensor, x: Tensor) -> Tensor:
    low, high = h - 1, h + 1
    for _ in range(3):
        middle = (low + high) / 2
        above = middle + middle**3 > x
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2


def recurrent(h: Tensor, x: Tensor) -> Tensor:
    mean = h.mean()
    return (h * 0.5 + x - mean).tanh() * h.std(0, keepdim=True)


def built_before(h: Tensor, x: Tensor) -> Tensor:
    """Build on a value, then reduce it: what is built already goes on computing it."""
    return (h * 0.5 + x - h.mean()).tanh() * h.std(0, keepdim=True)


def chain(h: Tensor, x: Tensor) -> Tensor:
    return ((h * 1.5).sin() + x).sigmoid() - x * 0.1


TURNS = [*ROUNDS, hidden, straight_through, masked, halved, recurrent, chain, built_before]


@pytest.mark.parametrize("seed", range(30))
def test_a_second_kernel_stores_what_one_has_computed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    turns = draw.choices(TURNS, k=draw.randint(2, 4)) * draw.randint(2, 4)
    x = torch.tensor([[((7 * i + 5 * j) % 11) / 11 for i in range(7)] for j in range(7)])
    x.requires_grad_()

    def forward() -> Tensor:
        h = x * 1.5
        for turn in turns:
            h = turn(h, x)
        return h.detach()

    for _ in range(3):
        forward().numpy()
    found = counted(monkeypatch, lambda: forward().numpy())
    with fusion.eager():
        plain = counted(monkeypatch, forward)  # where a program says the same twice
    most = 3 if built_before in turns else 2
    again = {value: n for value, n in found.items() if n > most * max(plain[value], 1)}
    assert len(found) > len(turns) and not again, [turn.__name__ for turn in turns]


def test_the_gradient_of_a_reduction_reads_what_was_stored() -> None:
    x = torch.rand(4, 5).requires_grad_()
    h = (x * 2).tanh()
    total = (h * h).sum(1, keepdim=True)
    result = h / (1 + total)
    assert total.grad_fn is not None
    product, _ = total.grad_fn.next_functions[0]
    assert product._edges == ((h.grad_fn, 0),)  # once, and not x
    with profiler.record() as log:
        result.sum().backward()
        assert x.grad is not None
        x.grad.numpy()
    assert [kernel.ops.count("tanh") for kernel in log.kernels] == [0] * len(log.kernels)
    y = x.detach().numpy()
    h, scale = np.tanh(2 * y), 1 / (1 + np.square(np.tanh(2 * y)).sum(1, keepdims=True))
    expected = (scale - 2 * h * h.sum(1, keepdims=True) * scale**2) * 2 * (1 - h * h)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_pass_that_runs_keeps_the_edges_that_it_has_counted() -> None:
    x = torch.rand(4, 5).requires_grad_()
    h = (x * 2).tanh()
    total = (h * h).sum(1)
    total.register_hook(lambda g: None if h[0].shape else g)  # h is stored: a view reads it
    total.backward(torch.ones(4))
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (4 * h * (1 - h * h)).detach())


def test_values_are_those_of_eager_execution() -> None:
    for turn in TURNS:
        found: list[Any] = []
        for eager in (False, True):
            x = torch.linspace(-1, 1, 64, dtype=torch.float64).reshape(8, 8).sin().requires_grad_()
            with fusion.eager() if eager else torch.enable_grad():
                h = x * 1.5
                for _ in range(6):
                    h = turn(h, x)
                (h * h).sum().backward()
            found.append((h.detach(), x.grad))
        for fused, plain in zip(*found, strict=True):
            torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-9, msg=turn.__name__)
