"""Hooks and retain_grad, also on values that fusing would make invisible."""

from __future__ import annotations

import gc
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.core.engine import observing
from tests.oracle import gives, torch_module

WHEN = [
    "before it is used", "after it was used", "after it was realized", "after all was realized",
]  # fmt: skip


def build(m: Any, device: str, when: str, register: Any) -> tuple[Any, Any]:
    """A region with an intermediate that somebody wants to look at."""
    x = m.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    h = x * x
    if when == "before it is used":
        register(h)
    y = (h.exp() * 0.01 + h) * x
    if "realized" in when:
        h.tolist()
    if when == "after all was realized":
        y.tolist()
    if when != "before it is used":
        register(h)
    return x, y


@pytest.mark.parametrize("when", WHEN)
def test_a_hook_on_an_intermediate_sees_its_whole_gradient(when: str, device: str) -> None:
    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        seen: list[Any] = []

        def look(g: Any, seen: Any = seen) -> None:
            seen.append(g.tolist())

        x, y = build(m, where, when, lambda h, look=look: h.register_hook(look))
        y.sum().backward()
        results.append((seen, x.grad.tolist()))
    assert len(results[0][0]) == 1
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5)


@pytest.mark.parametrize("when", WHEN)
def test_a_hook_may_change_the_gradient(when: str, device: str) -> None:
    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        x, y = build(m, where, when, lambda h: h.register_hook(lambda g: g * -2))
        y.sum().backward()
        results.append(x.grad.tolist())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


@pytest.mark.parametrize("when", WHEN)
def test_retain_grad_keeps_an_intermediates_gradient(when: str, device: str) -> None:
    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        kept: list[Any] = []

        def register(h: Any, kept: Any = kept) -> None:
            h.retain_grad()
            h.retain_grad()  # twice is once
            kept.append(h)

        x, y = build(m, where, when, register)
        assert kept[0].retains_grad
        y.sum().backward()
        results.append((kept[0].grad.tolist(), x.grad.tolist()))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


@pytest.mark.parametrize("when", WHEN)
def test_grad_by_an_intermediate_runs_its_hook(when: str, device: str) -> None:
    def triple(g: Any) -> Any:
        return g * 3

    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        kept: list[Any] = []

        def register(h: Any, kept: Any = kept) -> None:
            h.register_hook(triple)
            kept.append(h)

        _, y = build(m, where, when, register)
        (found,) = m.autograd.grad(y.sum(), kept[0])
        results.append(found.tolist())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_a_hook_is_asked_however_its_value_is_used_later(device: str) -> None:
    """The value and what was made of it are realized in every order before backward."""
    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        for order in ("", "h", "y", "hy", "yh"):
            x = m.tensor([0.5, 1.5], device=where, requires_grad=True)
            h = x * 3
            h.register_hook(lambda g: g * 2)
            y = h.tanh()
            for name in order:
                {"h": h, "y": y}[name].tolist()
            (y + h + x).sum().backward()
            results.append(x.grad.tolist())
    np.testing.assert_allclose(results[:5], results[5:], rtol=1e-5)


def test_a_hook_stays_with_the_value_it_was_registered_on(device: str) -> None:
    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        for read in (False, True):
            x = m.tensor([0.5, 1.5], device=where, requires_grad=True)
            y = x * 3
            y.register_hook(lambda g: g * 2)
            y.add_(x * x)  # not what the hook was put on
            if read:
                y.tolist()
            y.sum().backward()
            results.append(x.grad.tolist())
    np.testing.assert_allclose(results[:2], results[2:], rtol=1e-5)


def test_hooks_on_several_values_of_one_region(device: str) -> None:
    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        seen: dict[str, Any] = {}
        x = m.tensor([0.5, 1.5], device=where, requires_grad=True)
        a = x * 2
        b = a.tanh()
        c = a * b
        d = c + b
        y = d * a
        for name, t in (("a", a), ("b", b), ("c", c), ("d", d), ("y", y), ("x", x)):
            t.register_hook(lambda g, n=name, s=seen: s.__setitem__(n, g.tolist()))
        y.sum().backward()
        results.append(seen)
    assert results[0].keys() == results[1].keys()
    for name in results[0]:
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-5)


def test_hooks_under_create_graph(device: str) -> None:
    results = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        x = m.tensor([0.5, 1.5], device=where, requires_grad=True)
        h = x.exp()
        y = h * h * x
        h.register_hook(lambda g: g * g)
        (first,) = m.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = m.autograd.grad(first.sum(), x)
        results.append((first.tolist(), second.tolist()))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_hooks_run_in_order_and_each_sees_the_last_ones_answer(device: str) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = x * 1
    seen: list[float] = []
    y.register_hook(lambda g: (seen.append(g.item()), g * 2)[1])
    y.register_hook(lambda g: (seen.append(g.item()), g + 1)[1])
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 5).backward()
    assert seen == [5.0, 10.0, 11.0]
    assert x.grad.item() == 11.0


def test_a_removed_hook_is_not_called(device: str) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = x * 2
    seen: list[int] = []
    handle = y.register_hook(lambda g: seen.append(1))
    handle.remove()
    with y.register_hook(lambda g: seen.append(2)):
        pass
    handle.remove()
    y.backward()
    assert seen == []


def test_hooks_may_be_removed_while_they_run(device: str) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    seen: list[int] = []
    handles: list[Any] = []
    handles.append(x.register_hook(lambda g: (seen.append(1), handles[0].remove())[0]))
    (x * 2).backward()
    (x * 2).backward()
    assert seen == [1]


def test_a_hook_on_a_leaf_changes_what_is_accumulated(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    x.register_hook(lambda g: g * 10)
    (x * 2 + x).sum().backward()
    assert x.grad.tolist() == [30.0, 30.0]


def test_post_accumulate_hooks_see_the_leaf(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    seen: list[Any] = []
    handle = x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    handle.remove()
    (x * 2).sum().backward()
    assert seen == [(True, [2.0, 2.0]), (True, [4.0, 4.0])]
    with pytest.raises(RuntimeError, match="cannot be registered on non-leaf tensors"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_an_optimizer_step_inside_backward(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)

    def step(t: Any) -> None:
        with lucid_gpu.no_grad():
            t -= 0.1 * t.grad
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (x * x).sum().backward()
    np.testing.assert_allclose(x.tolist(), [0.8**3] * 2, rtol=1e-6)
    assert x.grad is None


def test_node_hooks_see_what_goes_in_and_out(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = x.sum()
    seen: list[Any] = []
    y.grad_fn.register_prehook(lambda gs: (seen.append(gs[0].item()), (gs[0] * 3,))[1])
    y.grad_fn.register_hook(
        lambda inputs, outputs: (seen.append((inputs[0].tolist(), outputs[0].item())), None)[1]
    )
    y.backward()
    assert seen == [1.0, ([3.0, 3.0], 3.0)]
    assert x.grad.tolist() == [3.0, 3.0]


def test_an_error_in_a_hook_passes_unchanged(device: str) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = x * 2

    def hook(g: Any) -> None:
        raise KeyError("mine")

    y.register_hook(hook)
    with pytest.raises(KeyError, match="mine"):
        y.backward()
    assert lucid_gpu.is_grad_enabled()


def test_a_hook_does_not_slow_down_what_has_none(device: str) -> None:
    """Regions without observers stay whole: the count of observers goes back to where it was."""
    gc.collect()
    before = observing.count
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: None)
    y.backward()
    lucid_gpu.autograd.grad((x * 3).exp(), x)
    del y
    gc.collect()
    assert observing.count == before


_VIEWS = {
    "select": lambda b: b[None][0],
    "slice": lambda b: b[:],
    "t": lambda b: b.reshape(3, 2).t(),
    "not a view": lambda b: b * 1,
}
# They read their operand through an alias, since PyTorch's save their result alone.
_OF_ALIASES = {
    "cross_entropy": lambda m, y, w: (
        m.nn.functional.cross_entropy(y, m.tensor([0, 2], device=y.device), reduction="none")
        * w[:, 0]
    ),
    "polar": lambda m, y, w: m.view_as_real(m.polar(y, w)).sum(-1),
    "polar's angle": lambda m, y, w: m.view_as_real(m.polar(w, y)).sum(-1),
}


@pytest.mark.parametrize("written", [None, "view", "base"])
@pytest.mark.parametrize("name", _OF_ALIASES)
@pytest.mark.parametrize("view", _VIEWS)
def test_hooks_of_views_see_gradients_of_ops_that_read_an_alias(
    view: str, name: str, written: str | None, device: str
) -> None:
    def run(m: Any, device: str) -> list[Any]:
        def made(values: Any, grad: bool = True) -> Any:
            return m.tensor(values, device=device, dtype=m.float64, requires_grad=grad)

        x, w = made([[0.3, 1.1, 0.7], [0.2, 0.9, 0.5]]), made([[0.4, 0.8, 1.2], [1.4, 0.1, 0.6]])
        seen: list[Any] = []
        b = x * 2
        y = _VIEWS[view](b)
        y.register_hook(lambda g: (seen.append(g.tolist()), g * 2)[1])
        out = _OF_ALIASES[name](m, y, w)
        if written:
            (y if written == "view" else b).mul_(3)
        total = (out * out).sum() + y.sin().sum()
        first = m.autograd.grad(total, (x, w), create_graph=True)
        second = m.autograd.grad(sum((g * g).sum() for g in first), (x, w))
        return [*seen, *[g.tolist() for g in (*first, *second)]]

    for ours, theirs in zip(run(lucid_gpu, device), run(torch_module(), "cpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


def test_hooks_of_a_tensor_are_listed_replaced_and_never_deleted(device: str) -> None:
    def scenario(m: Any, device: str) -> list[Any]:
        x = m.tensor([1.0, 2.0], device=device, requires_grad=True)
        y = x * 3
        found = [x._backward_hooks, y._backward_hooks, x.detach()._backward_hooks]
        for t in (x, y):
            handle = t.register_hook(lambda g: g * 2)
            found.append(list(t._backward_hooks) == [handle.id])
        x._backward_hooks = OrderedDict({handle.id: lambda g: g * 5})
        found.append(m.autograd.grad((y * y).sum(), x, retain_graph=True)[0])
        x._backward_hooks = None
        idle = x.detach()
        idle._backward_hooks = OrderedDict()
        idle._backward_hooks["never called"] = None
        with pytest.raises(RuntimeError, match="Deletion of _backwards_hooks not allowed!"):
            del x._backward_hooks
        return [*found, m.autograd.grad((y * y).sum(), x)[0]]

    gives([None, None, None, True, True, [180.0, 360.0], [36.0, 72.0]], scenario, device)
