"""What people do to leak: hooks that close over their tensors, errors in backward, graphs in .grad.

And a training loop of ten thousand steps with custom functions, at whose end there are as many
nodes, tensors and bytes as near its beginning.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from lucid_gpu.autograd.function import once_differentiable
from lucid_gpu.core.node import Node
from lucid_gpu.core.value import Cell

Scenario = Callable[[Any], list[Any]]


# --- hooks and closures ---------------------------------------------------------------------------


def tensor_hook_over_its_own_tensor(x: Any) -> list[Any]:
    y = x.exp()
    y.register_hook(lambda g: g * y.detach())
    y.sum().backward()
    return [y, y.grad_fn]


def tensor_hook_that_never_ran(x: Any) -> list[Any]:
    y = x.exp()
    y.register_hook(lambda g: g * y.detach())
    return [y, y.grad_fn]


def node_hook_over_its_own_output(x: Any) -> list[Any]:
    y = (x * 2).sum()
    y.grad_fn.register_hook(lambda inputs, outputs: y.item() and None)
    y.backward()
    return [y, y.grad_fn]


def node_prehook_over_its_own_node(x: Any) -> list[Any]:
    y = (x * 2).sum()
    node = y.grad_fn
    node.register_prehook(lambda outputs: node.name() and None)
    y.backward()
    return [y, node]


def hook_over_the_leaf(x: Any) -> list[Any]:
    leaf = (x.detach() * 2).requires_grad_()
    leaf.register_hook(lambda g: g + 0 * leaf.detach())
    leaf.register_post_accumulate_grad_hook(lambda t: leaf.sum() and None)
    (leaf * 3).sum().backward()
    return [leaf, leaf.grad]


def hook_that_keeps_the_gradient(x: Any) -> list[Any]:
    y = x * 2
    seen: list[Any] = []
    y.register_hook(seen.append)
    y.retain_grad()
    (y * y).sum().backward()
    assert len(seen) == 1
    return [y, y.grad_fn, y.grad]


def handle_that_outlives_its_tensor(x: Any) -> list[Any]:
    y = x * 2
    KEPT.append(y.register_hook(lambda g: None))
    (y * y).sum().backward()
    return [y, y.grad_fn]


def hook_on_a_function(x: Any) -> list[Any]:
    y = Squared.apply(x)
    y.grad_fn.register_hook(lambda inputs, outputs: y.detach() and None)
    y.grad_fn.metadata["output"] = y
    return [y, y.grad_fn]


# --- custom functions -----------------------------------------------------------------------------


class Squared(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x


class Exp(Function):
    """The other form of forward, and a saved output."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * y


class Doubled(Function):
    """In place."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


class SplitSign(Function):
    """Two outputs, one without a gradient, and a number as an attribute."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(positive)
        ctx.scale = scale
        return x * scale, positive

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        (positive,) = ctx.saved_tensors
        return g * ctx.scale * positive, None


class CubeRoot(Function):
    """On an array, and not twice differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        array = x.detach().cpu().numpy()
        y = lucid_gpu.as_tensor(np.cbrt(array)).to(x.device)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g / (3 * y * y + 1)


class Failing(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise ValueError("on purpose")


def dirty_view(x: Any) -> list[Any]:
    base = x * 1
    part = base[1:]
    Doubled.apply(part)
    base.sum().backward()
    return [base, part, base.grad_fn, part.grad_fn]


def dirty_view_without_backward(x: Any) -> list[Any]:
    base = x * 1
    part = base[1:]
    Doubled.apply(part)
    return [base, part, base.grad_fn]


def second_order(x: Any) -> list[Any]:
    y = Exp.apply(Squared.apply(x)).sum()
    (g,) = lucid_gpu.autograd.grad(y, x, create_graph=True)
    g.sum().backward()
    return [y, y.grad_fn, g, g.grad_fn]


def gradient_that_holds_its_own_graph(x: Any) -> list[Any]:
    leaf = (x.detach() * 2).requires_grad_()
    y = Squared.apply(leaf).sum()
    y.backward(create_graph=True)
    assert leaf.grad.requires_grad
    return [leaf, leaf.grad, y, y.grad_fn, leaf.grad.grad_fn]


def error_in_backward(x: Any) -> list[Any]:
    y = Failing.apply(Squared.apply(x)).sum()
    with pytest.raises(ValueError, match="on purpose"):
        y.backward()
    return [y, y.grad_fn]


def error_in_a_hook(x: Any) -> list[Any]:
    y = x.exp()

    def hook(g: Any) -> None:
        raise KeyError(y.shape)

    y.register_hook(hook)
    with pytest.raises(KeyError):
        y.sum().backward()
    return [y, y.grad_fn]


def error_in_forward(x: Any) -> list[Any]:
    y = x * 2

    class Fails(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.x = x
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        Fails.apply(y)
    return [y]


def context_kept_by_the_class(x: Any) -> list[Any]:
    class Keeps(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            Keeps.last = ctx
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    y = Keeps.apply(x * 1)
    y.sum().backward()
    return [y, y.grad_fn]


def several_outputs_of_which_one_is_used(x: Any) -> list[Any]:
    y, positive = SplitSign.apply(x, 2.0)
    del positive
    y.sum().backward()
    return [y, y.grad_fn]


KEPT: list[Any] = []  # what a scenario says outlives it
SCENARIOS: list[Scenario] = [
    tensor_hook_over_its_own_tensor,
    tensor_hook_that_never_ran,
    node_hook_over_its_own_output,
    node_prehook_over_its_own_node,
    hook_over_the_leaf,
    hook_that_keeps_the_gradient,
    handle_that_outlives_its_tensor,
    hook_on_a_function,
    dirty_view,
    dirty_view_without_backward,
    second_order,
    gradient_that_holds_its_own_graph,
    error_in_backward,
    error_in_a_hook,
    error_in_forward,
    context_kept_by_the_class,
    several_outputs_of_which_one_is_used,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_nothing_is_left_after_a_collection(scenario: Scenario, device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    gone = [weakref.ref(thing) for thing in scenario(x)]
    x.grad = None
    gc.collect()
    assert [r() for r in gone if r() is not None] == []
    KEPT.clear()


# --- ten thousand steps ---------------------------------------------------------------------------


def living(kind: type[Any]) -> list[Any]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def memory_of(array: Any) -> tuple[int, int]:
    """The buffer an array lies in, and its bytes."""
    while isinstance(getattr(array, "base", None), type(array)):
        array = array.base
    return id(array), array.nbytes


def census() -> dict[str, int]:
    """How much is alive."""
    buffers = dict(memory_of(c.array) for c in living(Cell) if hasattr(c.array, "nbytes"))
    return {
        "nodes": len(living(Node)),
        "tensors": len(living(lucid_gpu.Tensor)),
        "cells": len(living(Cell)),
        "bytes": sum(buffers.values()),
    }


def step(i: int, w: Any, v: Any, x: Any) -> Any:
    """One of several kinds of steps, each by custom functions."""
    h = Squared.apply(x @ w)
    kind = i % 10
    if kind < 3:
        h = Exp.apply(h * -0.1)
    elif kind == 3:
        h = Doubled.apply(h * 1)
    elif kind == 4:
        part = h[1:]
        Doubled.apply(part)
    elif kind == 5:
        h, _ = SplitSign.apply(h, 0.5)
    elif kind == 6:
        h = CubeRoot.apply(h)
    elif kind == 7:
        h.register_hook(lambda g: g + 0 * h.detach())
        h.retain_grad()
    loss = (h @ v).square().mean()
    if kind == 8:
        (g,) = lucid_gpu.autograd.grad(loss, w, create_graph=True)
        loss = loss + g.square().sum()
    elif kind == 9:
        with pytest.raises(ValueError, match="on purpose"):
            Failing.apply(loss).backward()
        return loss.detach()
    loss.backward()
    return loss.detach()


@pytest.mark.slow
def test_ten_thousand_steps_hold_as_much_at_the_end_as_at_the_beginning(
    device: str, own_heap: None
) -> None:
    w = lucid_gpu.rand(4, 3, device=device, requires_grad=True)
    v = lucid_gpu.rand(3, 1, device=device, requires_grad=True)
    x = lucid_gpu.rand(5, 4, device=device)
    optimizer = lucid_gpu.optim.SGD([w, v], lr=1e-4, momentum=0.9)
    counts = []
    for i in range(10_000):
        loss = step(i, w, v, x)
        optimizer.step()
        optimizer.zero_grad()
        if i in (999, 4_999, 9_999):
            del loss
            gc.collect()
            counts.append(census())
    assert counts[0] == counts[1] == counts[2]
    assert counts[2]["bytes"] < 10_000


def test_the_count_sees_a_leak(device: str, own_heap: None) -> None:
    """A global that keeps a tensor shows in every figure."""
    x = lucid_gpu.rand(100, device=device, requires_grad=True)
    gc.collect()
    before = census()
    kept = Squared.apply(x * 1).exp()
    kept.tolist()
    gc.collect()
    after = census()
    assert all(after[what] > before[what] for what in before)
    del kept
    gc.collect()
    assert census() == before
