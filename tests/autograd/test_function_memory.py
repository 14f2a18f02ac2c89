"""What a Function's node holds, and that nothing of it outlives its last user."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.autograd.graph import saved_tensors_hooks
from tests.autograd.functions import make
from tests.oracle import gives


def times_saved(ctx: Any, g: Any, *others: Any) -> Any:
    return g * ctx.saved_tensors[0]


def saves_input(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x


def saves_output(ctx: Any, x: Any) -> Any:
    y = x.exp()
    ctx.save_for_backward(y)
    return y


def saves_one_of_two_outputs(ctx: Any, x: Any) -> Any:
    y, z = x.exp(), x * 2
    ctx.save_for_backward(z)
    return y, z


def saves_constant_output(ctx: Any, x: Any) -> Any:
    k = x * 2
    ctx.mark_non_differentiable(k)
    ctx.save_for_backward(k)
    return x * x, k


def saves_intermediate(ctx: Any, x: Any) -> Any:
    e = x.exp()
    ctx.save_for_backward(e)
    return e * 2


def saves_view_of_input(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x[:])
    return x * x


def returns_input(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x


def returns_view(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x.view(-1)


def writes_input(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x.mul_(2))
    ctx.mark_dirty(x)
    return x


def keeps_output(ctx: Any, x: Any) -> Any:
    ctx.y = x.exp()
    ctx.save_for_backward(ctx.y)
    return ctx.y


def saves_view_of_output(ctx: Any, x: Any) -> Any:
    y = x.exp()
    ctx.save_for_backward(y.view(-1))
    return y


WITHOUT_CYCLES = [
    saves_input,
    saves_output,
    saves_one_of_two_outputs,
    saves_constant_output,
    saves_intermediate,
    saves_view_of_input,
    returns_input,
    returns_view,
    writes_input,
]
WITH_CYCLES = [keeps_output, saves_view_of_output]
USES = ["dropped", "read", "backward", "read, backward", "backward kept", "grad"]


def first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def traces_of(forward: Any, how: str, device: str, on_a_view: bool = False) -> list[Any]:
    """Apply a Function, use it, and keep weak references only."""
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    base = x * 1
    given = base[1:] if on_a_view else base
    result = make(lucid_gpu, forward, times_saved).apply(given)
    y = first(result)
    node = y.grad_fn
    traces: list[Any] = [weakref.ref(t) for t in (y, node, given, base)]
    if "read" in how:
        y.tolist()
    held = node.saved_values if hasattr(node, "saved_values") else node.saved_tensors
    traces += [weakref.ref(t) for t in held if t is not None]
    if "backward" in how:
        y.sum().backward(retain_graph="kept" in how)
        KEPT.append(x)  # and its gradient, which is pending and reads what was saved
    if how == "grad":
        KEPT.append(lucid_gpu.autograd.grad(y.sum(), x))
    return traces


KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def _keep_gradients_until_the_test_is_over() -> Iterator[None]:
    yield
    KEPT.clear()


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("forward", WITHOUT_CYCLES, ids=lambda f: f.__name__)
def test_a_call_is_freed_without_a_collection(
    forward: Any, how: str, device: str, without_gc: None
) -> None:
    assert [t() for t in traces_of(forward, how, device) if t() is not None] == []


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("forward", WITH_CYCLES, ids=lambda f: f.__name__)
def test_a_call_that_holds_its_own_output_is_freed_by_a_collection(
    forward: Any, how: str, device: str
) -> None:
    traces = traces_of(forward, how, device)
    gc.collect()
    assert [t() for t in traces if t() is not None] == []


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("forward", [writes_input, returns_input, saves_input])
def test_a_call_on_a_view_is_freed(forward: Any, how: str, device: str) -> None:
    traces = traces_of(forward, how, device, on_a_view=True)
    gc.collect()
    assert [t() for t in traces if t() is not None] == []


@pytest.mark.parametrize("forward", [saves_input, saves_output, keeps_output])
def test_a_hook_over_its_own_output_is_freed(forward: Any, device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)

    def use() -> list[Any]:
        y = make(lucid_gpu, forward, times_saved).apply(x)
        y.register_hook(lambda g: g + y.detach() * 0)
        y.grad_fn.register_hook(lambda ins, outs: y.tolist() and None)
        y.sum().backward()
        return [weakref.ref(y), weakref.ref(y.grad_fn)]

    traces = use()
    gc.collect()
    assert [t() for t in traces] == [None, None]
    assert x.grad is not None


def test_saved_outputs_are_freed_where_hooks_pack_them(device: str, without_gc: None) -> None:
    with saved_tensors_hooks(lambda t: t.detach() * 1, lambda t: t):
        traces = traces_of(saves_output, "backward", device)
    assert [t() for t in traces if t() is not None] == []


def test_what_was_saved_goes_with_the_graph_not_with_the_output(device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    h = x * 1
    h.tolist()
    y = make(lucid_gpu, saves_input, times_saved).apply(h)
    cell, kept = weakref.ref(h._cell()), weakref.ref(h)
    del h
    assert kept() is not None
    y.sum().backward()
    x.grad.tolist()
    assert kept() is None and y.tolist()
    assert cell() is None


def test_nothing_is_kept_where_nothing_is_recorded(device: str, without_gc: None) -> None:
    function = make(lucid_gpu, saves_input, times_saved)
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    h = x * 1
    kept = weakref.ref(h)
    with lucid_gpu.no_grad():
        y = function.apply(h)
    y.tolist()
    del h
    assert kept() is None


def test_a_ctx_that_outlives_its_call_holds_what_was_saved(device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    h = x * 1
    y = make(lucid_gpu, saves_input, times_saved).apply(h)
    ctx, output, kept = y.grad_fn, weakref.ref(y), weakref.ref(h)
    del y, h
    assert output() is None
    assert ctx.saved_tensors[0] is kept()
    del ctx
    assert kept() is None


def test_a_gradient_holds_no_graph_though_nobody_has_read_it(device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)

    def use() -> list[Any]:
        h = x * 2
        h.tolist()
        h.register_hook(lambda g: g + h.detach() * 0)
        y = make(lucid_gpu, keeps_output, times_saved).apply(h)
        (y * y).sum().backward()
        return [weakref.ref(t) for t in (h, y, y.grad_fn, h.grad_fn)]

    traces = use()
    gc.collect()
    assert [t() for t in traces] == [None] * 4
    expected = (4 * (4 * x.detach()).exp()).tolist()
    assert x.grad.tolist() == pytest.approx(expected, rel=1e-5)


def test_a_gradient_that_is_a_saved_tensor_is_no_part_of_the_graph(device: str) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = m.ones(3, device=d, requires_grad=True)
        h = x * 1
        h.retain_grad()
        y = make(m, saves_output, lambda ctx, g: ctx.saved_tensors[0]).apply(h)
        y.sum().backward()
        return [t.grad.requires_grad for t in (x, h)]

    gives([False, False], scenario, device)
