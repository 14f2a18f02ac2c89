"""Programs in which reductions and elementwise ops alternate: what their depth costs.

Counted are the ops, kernels and bytes of one forward and backward pass, beside eager execution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu as torch
from lucid_gpu import Tensor, fusion, profiler


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
    along_rows_and_columns: 2.1,
    softmax: 2.0,
    layer_norm: 3.3,
    residual_layer_norm: 3.6,
    unit_rows: 3.4,
    residual_rms_norm: 3.3,
    by_extremum: 3.5,
    by_norm_of_all: 3.4,
    less_its_mean: 1.7,
    gram_schmidt: 2.2,
    means_of_both: 2.3,
    log_sum_exp: 2.2,
    variance: 1.8,
    attention: 1.3,
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


def test_values_are_those_of_eager_execution() -> None:
    for turn in ROUNDS:
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
