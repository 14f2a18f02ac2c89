"""Nodes that go backward in the place of others: nobody sees a difference but in what runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import profiler
from tests.oracle import agree, torch_module

RNG = np.random.default_rng(3)
TABLE = RNG.random((5, 4)) + 0.5

FUNCTIONS: dict[str, Any] = {
    "columns": lambda m, x: x[:, 0] * x[:, 1].exp() + x[:, 2].sin() * x[:, 3],
    "with the whole": lambda m, x: (x[:, 0] * x[:, 1])[:, None] * x + x**2,
    "overlapping": lambda m, x: (x[1:] * x[:-1]).sin() + x[1:, :1] * x[0],
    "the same twice": lambda m, x: x[:, 1].exp() * x[:, 1].sin(),
    "elements": lambda m, x: x[0, 1] * x[2, 3].exp() * x[0, 1],
    "steps and new axes": lambda m, x: x[::2, None, 1] * x[None, 1, 1:].exp().sum(),
    "ellipsis": lambda m, x: x[..., 0] * x[..., -1] ** 2,
    "an empty one": lambda m, x: x[:0].sum() + x[2, :0].exp().sum() * x[1].sum() + x[0].sin(),
    "slices of slices": lambda m, x: x[1:][:, 0] * x[:4][:, 1].tanh(),
    "other types": lambda m, x: x[:, 0].float() * x[:, 1].exp().float() * x[0, 0].float(),
    "a stencil": lambda m, x: (
        x.roll(1, 0) * x + x.roll(-1, 0).exp() + x.roll(2, 1).sin() * x.roll(-1, 1)
    ),
    "rolls of several dimensions": lambda m, x: (
        (x.roll((1, 2), (0, 1)) + x.roll((-1, 1), (1, 0)) + x.roll(0, 0) + x.roll(5, 0)).sin()
        * x.roll(4, 1)
    ),
    "rolls of a transposed one": lambda m, x: (x.T.roll(1, 0) + x.T.roll(1, 1) * x.T.roll(3)) ** 2,
    "rolls that are sliced": lambda m, x: x.roll(1, 0)[1:, 0] * x.roll(1, 1)[:-1, 1] + x[1:, 2],
    "an empty one, rolled": lambda m, x: x[:0].roll(1, 0).sum() * x[:0].roll(1, 1).sum() + x.sum(),
    "roots": lambda m, x: (x[:, 0] ** 2 + x[:, 1] ** 2).sqrt() * x[:, 2].sqrt(),
}


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, "row-major") for name in FUNCTIONS]
    + [("columns", "transposed"), ("a stencil", "transposed")],
)
def test_gradients_of_both_orders_agree(name: str, layout: str, device: str) -> None:
    given = TABLE if layout == "row-major" else np.asfortranarray(TABLE)
    agree(FUNCTIONS[name], given, order=2, device=device)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_type(dtype: str, device: str) -> None:
    def function(m: Any, x: Any) -> Any:
        x = x.to(getattr(m, dtype))
        x = x.roll(1, 0) * x + x.roll(1, 1)
        return (x[:, 0] * x[:, 1] + x[:, 1] * x[:, 2]).to(m.float32)

    agree(function, TABLE, order=2, rtol=1e-2, atol=1e-2, device=device)


def laplacian(m: Any, x: Any) -> Any:
    """Second derivatives by three inputs of one region, which are computed together."""
    a, b, c = (x[:, k] for k in range(3))
    y = ((a * b).sin() * (b * c).cos() * (1 + a * c).log()).sum()
    total = 0.0
    for k, part in enumerate((a, b, c)):
        first = m.autograd.grad(y, (a, b, c), create_graph=True)
        total = total + m.autograd.grad(first[k].sum(), part, create_graph=True)[0]
    return total


def test_third_derivatives_through_second_ones(device: str) -> None:
    agree(laplacian, TABLE, order=2, device=device)


def second(m: Any, device: str, watch: Any) -> Any:
    """Gradients of a function of gradients, with somebody who looks on."""
    x = m.tensor(TABLE, device=device, requires_grad=True)
    a, b = x[:, 0], x[:, 1]
    y = ((a * b).sin() * (a + 2 * b).cos()).sum()
    first = m.autograd.grad(y, (a, b), create_graph=True)
    seen: list[Any] = []
    wanted = watch(first, (a, b), seen) or (x,)
    found = m.autograd.grad((first[0] ** 2).sum() + (first[1] * x[:, 2]).sum(), wanted)
    return [t.detach().cpu().numpy() for t in (*found, *seen)]


def _hook(first: Any, parts: Any, seen: list[Any]) -> None:
    first[1].register_hook(lambda g: seen.append(g.clone()))


def _hook_that_changes(first: Any, parts: Any, seen: list[Any]) -> None:
    first[0].register_hook(lambda g: 2 * g)


def _hook_of_a_part(first: Any, parts: Any, seen: list[Any]) -> None:
    parts[1].register_hook(lambda g: seen.append(g.clone()))


WATCHERS: dict[str, Any] = {
    "nobody": lambda first, parts, seen: None,
    "a hook": _hook,
    "a hook that changes a cotangent": _hook_that_changes,
    "a hook of a part": _hook_of_a_part,
    "a hook of a node": lambda first, parts, seen: (
        first[0].grad_fn.register_prehook(lambda gs: seen.append(gs[0].clone())) and None
    ),
    "inputs that are parts": lambda first, parts, seen: parts,
    "an input that is a cotangent": lambda first, parts, seen: (first[1], parts[0]),
}


@pytest.mark.parametrize("name", WATCHERS)
def test_who_looks_sees_what_torch_shows(name: str, device: str) -> None:
    expected = second(torch_module(), "cpu", WATCHERS[name])
    found = second(lucid_gpu, device, WATCHERS[name])
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_retained_graph_gives_the_same_again(device: str) -> None:
    x = lucid_gpu.tensor(TABLE, device=device, requires_grad=True)
    y = (x[:, 0] * x[:, 1].exp()).sum()
    (first,) = lucid_gpu.autograd.grad(y, x, create_graph=True)
    total = (first**2).sum()
    (once,) = lucid_gpu.autograd.grad(total, x, retain_graph=True)
    (again,) = lucid_gpu.autograd.grad(total, x)
    assert lucid_gpu.equal(once, again)


def test_regions_of_one_kernel_go_backward_in_one(device: str) -> None:
    x = lucid_gpu.tensor(TABLE, device=device, requires_grad=True)
    a, b = x[:, 0], x[:, 1]
    y = ((a * b).sin() * (a + 2 * b).cos()).sum()
    (first,) = lucid_gpu.autograd.grad(y, x, create_graph=True)
    total = (first**2).sum()
    total.item()
    with profiler.record() as log:
        (g,) = lucid_gpu.autograd.grad(total, x)
        g.array
    assert [k.shape for k in log.kernels] == [(5, 4), (5,)]
