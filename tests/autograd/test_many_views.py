"""A write through one of many living views costs the same, whatever their number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from bench.host_costs import python_calls
from lucid_gpu import nn
from tests.oracle import torch_module

SIZE = 4


def parts(m: Any, n: int) -> tuple[Any, list[Any]]:
    flat = m.zeros(SIZE * n)
    return flat, list(flat.split(SIZE))


def rows(m: Any, n: int) -> tuple[Any, list[Any]]:
    flat = m.zeros(n, SIZE)
    return flat, list(flat)


def unbound(m: Any, n: int) -> tuple[Any, list[Any]]:
    flat = m.zeros(n, SIZE)
    return flat, list(flat.unbind(0))


def detached(m: Any, n: int) -> tuple[Any, list[Any]]:
    flat = m.zeros(SIZE * n)
    return flat, [flat.detach()[i * SIZE : (i + 1) * SIZE] for i in range(n)]


def bucket(m: Any, n: int) -> tuple[Any, list[Any]]:
    """Gradients that lie in one piece of memory, as those of DDP."""
    flat = m.zeros(SIZE * n)
    views = [flat[i * SIZE : (i + 1) * SIZE].view(2, 2) for i in range(n)]
    parameters = [m.nn.Parameter(m.ones(2, 2)) for _ in views]
    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view
    return flat, [parameter.grad for parameter in parameters]


def flat_parameter(m: Any, n: int) -> tuple[Any, list[Any]]:
    flat = m.nn.Parameter(m.zeros(SIZE * n))
    with m.no_grad():
        return flat, list(flat.split(SIZE))


def data(m: Any, n: int) -> tuple[Any, list[Any]]:
    flat = m.zeros(SIZE * n)
    parameters = [m.nn.Parameter(m.ones(SIZE)) for _ in range(n)]
    for parameter, part in zip(parameters, flat.split(SIZE), strict=True):
        parameter.data = part
    return flat, parameters


def recorded(m: Any, n: int) -> tuple[Any, list[Any]]:
    flat = m.ones(SIZE * n, requires_grad=True) * 1
    return flat, [flat[i * SIZE : (i + 1) * SIZE] for i in range(n)]


MADE: dict[str, Callable[[Any, int], tuple[Any, list[Any]]]] = {
    "split": parts,
    "rows": rows,
    "unbind": unbound,
    "detached": detached,
    "a bucket": bucket,
    "a flat parameter": flat_parameter,
    "data": data,
    "recorded": recorded,
}
_ALL = ("call", "c_call")
UNRECORDED = ("a flat parameter", "data")


def write(name: str, view: Any) -> None:
    with lucid_gpu.set_grad_enabled(name not in UNRECORDED):
        view.add_(1)


def price(name: str, n: int) -> int:
    """The calls of a write through one of n views that were all written before."""
    _, views = MADE[name](lucid_gpu, n)
    for view in views[:5] + views[-5:]:
        write(name, view)
    numbers = (n // 2, n // 2 + 1, n // 3)
    return min(python_calls(partial(write, name, views[i]), _ALL) for i in numbers)


@pytest.mark.parametrize("name", MADE)
def test_a_write_takes_as_many_steps_beside_a_thousand_views_as_beside_ten(name: str) -> None:
    assert price(name, 1000) <= price(name, 10) + 5


def test_a_write_takes_as_many_steps_beside_ten_thousand_views() -> None:
    assert price("split", 10_000) <= price("split", 10) + 5


def test_each_row_of_a_hundred_thousand_is_written() -> None:
    flat = lucid_gpu.zeros(100_000, 2)
    views = list(flat.unbind(0))
    for view in views[::20]:
        view += 1
    assert flat.sum().item() == 10_000
    assert views[20].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", MADE)
def test_what_was_read_before_is_kept_and_what_is_read_after_is_new(name: str) -> None:
    def program(m: Any) -> list[Any]:
        flat, views = MADE[name](m, 6)
        results = []
        with m.set_grad_enabled(name not in UNRECORDED):
            for i in (2, 0, 2, 5):
                before = [views[2] * 3, flat.sum(), views[i] + views[0]]
                views[i].mul_(2).add_(i + 1)
                results += [t.tolist() for t in (*before, *views, flat)]
                results.append([v._version for v in views])
        if name == "recorded":
            (flat * flat).sum().backward()
        return results

    assert program(lucid_gpu) == program(torch_module())


def test_gradients_of_written_views_are_those_of_torch() -> None:
    def program(m: Any) -> list[Any]:
        x = m.ones(3, 4, requires_grad=True)
        y = x * 2
        views = [y[i] for i in range(3)]
        kept = views[1] * y[0]
        views[0].retain_grad()
        views[2].mul_(x[0])
        first = views[2].grad_fn is not None
        views[0].mul_(3)
        total = (views[0] * x[1]).sum() + views[1].exp().sum() + views[2].sum()
        total.backward()
        return [first, x.grad.tolist(), kept.tolist(), views[0].grad.tolist()]

    for ours, theirs in zip(program(lucid_gpu), program(torch_module()), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6)


def test_a_parameter_of_a_module_that_lies_in_one_memory_is_trained() -> None:
    def program(m: Any) -> list[Any]:
        layers = [m.nn.Linear(2, 2) for _ in range(3)]
        parameters = [p for layer in layers for p in layer.parameters()]
        flat = m.arange(float(sum(p.numel() for p in parameters))) / 10
        start = 0
        for p in parameters:
            p.data = flat[start : start + p.numel()].view_as(p)
            start += p.numel()
        losses = []
        for _ in range(3):
            x = m.ones(1, 2)
            for layer in layers:
                x = layer(x).tanh()
            x.sum().backward()
            with m.no_grad():
                for p in parameters:
                    p.sub_(p.grad * 0.5)
                    p.grad = None
                flat.mul_(0.9)
            losses.append(x.sum().item())
        return [[round(n, 5) for n in losses], [round(n, 5) for n in flat.tolist()]]

    assert isinstance(nn.Linear(2, 2), nn.Module)
    assert program(lucid_gpu) == program(torch_module())


def test_a_parameter_stepped_through_its_data_costs_the_same_in_each_step() -> None:
    p = lucid_gpu.ones(3, requires_grad=True)

    def step() -> None:
        (p * p).sum().backward()
        p.data -= 0.01 * p.grad
        p.grad = None

    prices = []
    for _ in range(3):
        for _ in range(20):
            step()
        prices.append(python_calls(step, _ALL))
    assert prices[2] <= prices[0] + 10


def test_a_parameter_that_is_viewed_in_each_step_does_not_hold_references_to_what_is_gone() -> None:
    layer = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    optimizer = lucid_gpu.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)
    x = lucid_gpu.ones(2, 1, 5, 5)
    for _ in range(60):
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()
    for p in layer.parameters():
        assert len(p._memory().read) < 20
