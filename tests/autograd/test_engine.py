"""Section Engine of the specification: long graphs, passes inside passes, threads, errors."""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from lucid_gpu.core import engine
from lucid_gpu.core.node import Node
from lucid_gpu.tape.modes import state
from lucid_gpu.torch_names import _C as internals
from tests.oracle import gives, modules, torch_module


def leaf(m: Any, device: str, *values: float) -> Any:
    return m.tensor(list(values), device=device, requires_grad=True)


# --- long graphs ----------------------------------------------------------------------------------


class Same(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


def test_a_chain_of_150_000_nodes_goes_backward_and_is_freed(device: str, without_gc: None) -> None:
    """Without recursion, and by reference count alone."""
    x = leaf(lucid_gpu, device, 1.0)
    y, nodes = x, []
    for i in range(150_000):
        y = Same.apply(y)
        if i % 10_000 == 0:
            nodes.append(weakref.ref(y.grad_fn))
    y.sum().backward()
    assert x.grad.tolist() == [1.0]
    assert all(n() is not None for n in nodes)
    y = None
    assert all(n() is None for n in nodes)


def test_a_chain_kept_by_retain_graph_runs_again(device: str, without_gc: None) -> None:
    x = leaf(lucid_gpu, device, 1.0)
    y = x
    for _ in range(3000):
        y = Same.apply(y)
    node = weakref.ref(y.grad_fn)
    for _ in range(3):
        y.backward(retain_graph=True)
    assert x.grad.tolist() == [3.0]
    y = None
    assert node() is None


class _Plain(Node):
    """A node of numbers: the engine knows no tensors."""

    def __init__(self, edges: Any, order: list[Any], name: str) -> None:
        super().__init__(edges)
        self.order = order
        self.title = name

    def vjp(self, cotangents: Any) -> Any:
        self.order.append((self.title, cotangents[0]))
        return (cotangents[0],) * len(self._edges)


def test_nodes_run_when_all_that_feeds_them_has_and_the_latest_first() -> None:
    order: list[Any] = []
    a = _Plain((), order, "a")
    b = _Plain(((a, 0),), order, "b")
    c = _Plain(((a, 0), (b, 0)), order, "c")
    d = _Plain(((b, 0), (a, 0), (c, 0)), order, "d")
    engine.backward([(d, 0), (b, 0)], [1.0, 10.0], False, False)
    assert order == [("d", 1.0), ("c", 1.0), ("b", 12.0), ("a", 14.0)]


def test_the_latest_branch_goes_first(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[str] = []
        x = leaf(m, device, 1.0)
        branches = []
        for name in "abcd":
            h = x.clone()
            h.grad_fn.register_prehook(lambda g, n=name: seen.append(n))
            branches.append(h)
        m.stack(branches[::-1]).sum().backward()
        return seen

    gives(["d", "c", "b", "a"], scenario, device)


# --- passes inside passes -------------------------------------------------------------------------


def nesting(m: Any) -> Any:
    """A Function whose backward goes backward through itself, one level deeper."""

    class Nests(m.autograd.Function):  # type: ignore[misc]
        deepest = 0

        @staticmethod
        def forward(ctx: Any, x: Any, level: int) -> Any:
            ctx.level = level
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            Nests.deepest = max(Nests.deepest, ctx.level)
            if ctx.level == Nests.limit:
                return Nests.bottom(g), None
            with m.enable_grad():
                x = g.detach().requires_grad_()
                Nests.apply(x, ctx.level + 1).backward(g)
            return x.grad, None

        @staticmethod
        def bottom(g: Any) -> Any:
            return g * 2

    return Nests


def test_2_000_nested_reentrant_backwards(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        f = nesting(m)
        f.limit = 2000
        x = leaf(m, device, 1.0)
        f.apply(x, 0).backward()
        return x.grad, f.deepest

    gives([[2.0], 2000], scenario, device)


def test_the_threads_of_deep_nests_end(device: str) -> None:
    before = threading.active_count()
    f = nesting(lucid_gpu)
    f.limit = 100
    for _ in range(3):
        f.apply(leaf(lucid_gpu, device, 1.0), 0).backward()
    assert threading.active_count() <= before


def test_modes_hold_in_deep_nests(device: str) -> None:
    """A pass on another thread has the modes of the one it is called from."""

    def scenario(m: Any, device: str) -> Any:
        f = nesting(m)
        f.limit = 70
        seen: list[Any] = []

        def bottom(g: Any) -> Any:
            seen.append(m.is_grad_enabled())
            return g * 2

        f.bottom = staticmethod(bottom)
        x = leaf(m, device, 1.0)
        (first,) = m.autograd.grad(f.apply(x, 0), x, create_graph=True)
        return seen, first, m.is_grad_enabled()

    gives([[False], [2.0], True], scenario, device)


def test_reentrant_tasks_run_before_the_outer_graphs_pending_ones(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[str] = []

        class Reenters(m.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.clone()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                seen.append("in")
                with m.enable_grad():
                    own = leaf(m, device, 1.0)
                    h = own * 1
                    h.register_hook(lambda g: seen.append("inner"))
                    (h * 2).backward()
                seen.append("out")
                return g * own.grad

        x = leaf(m, device, 1.0)
        waiting = x.clone()
        waiting.grad_fn.register_prehook(lambda g: seen.append("outer"))
        (waiting + Reenters.apply(x)).backward()
        return seen, x.grad

    gives([["in", "inner", "out", "outer"], [3.0]], scenario, device)


def test_an_inner_pass_may_add_to_leaves_of_the_outer_one(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, w = leaf(m, device, 1.0), leaf(m, device, 3.0)

        class AddsToW(m.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * 3

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                with m.enable_grad():
                    own = ctx.saved_tensors[0].detach().requires_grad_()
                    (own * w).backward(g)
                return own.grad

        (AddsToW.apply(x) * w).backward()
        return x.grad, w.grad

    gives([[9.0], [6.0]], scenario, device)


def test_an_inner_pass_through_the_outer_graph(device: str) -> None:
    """A hook that goes backward through a graph which the outer pass has yet to run."""

    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 2.0)
        h = x * 3
        y = h.clone()
        inner = h.sum()
        y.register_hook(lambda g: inner.backward(retain_graph=True))
        y.sum().backward()
        return x.grad

    gives([6.0], scenario, device)


@pytest.mark.parametrize("depth", [1, 100])
def test_a_childs_error_reaches_the_parent_with_the_users_traceback(
    depth: int, device: str
) -> None:
    for m, where in modules(device):
        f = nesting(m)
        f.limit = depth

        def fails_at_the_bottom(g: Any) -> Any:
            raise KeyError("at the bottom")

        f.bottom = staticmethod(fails_at_the_bottom)
        y = f.apply(leaf(m, where, 1.0), 0)
        with pytest.raises(KeyError, match="at the bottom") as caught:
            y.backward()
        lines = traceback.extract_tb(caught.value.__traceback__)
        assert lines[-1].name == "fails_at_the_bottom"
        assert sum(line.name == "backward" and line.filename == __file__ for line in lines) > depth
        assert m.is_grad_enabled()


# --- threads --------------------------------------------------------------------------------------


def in_threads(count: int, work: Any) -> None:
    """Run ``work(i)`` on threads that start together; the first error is raised here."""
    failed: list[BaseException] = []
    start = threading.Barrier(count)

    def run(i: int) -> None:
        try:
            start.wait(timeout=200)
            work(i)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.parametrize("read", [False, True])
def test_eight_threads_on_shared_leaves_give_the_right_sums(read: bool, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.ones(1000, device=device).requires_grad_()
        w = m.full((1000,), 2.0, device=device).requires_grad_()

        def work(i: int) -> None:
            for k in range(25):
                y = (x * w * float(i + 1)).sum() + (x + k).sum()
                y.backward()
                if read:
                    x.grad.sum().item()

        in_threads(8, work)
        return [x.grad.min(), x.grad.max(), w.grad.min(), w.grad.max()]

    each = 25.0 * sum(range(1, 9))
    gives([2 * each + 200, 2 * each + 200, each, each], scenario, device)


def test_eight_threads_on_one_graph_give_the_right_sums(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.ones(100, device=device).requires_grad_()
        shared = (x * 3).exp().log() * x
        loss = (shared * shared).sum()

        def work(i: int) -> None:
            for _ in range(10):
                loss.backward(retain_graph=True)

        in_threads(8, work)
        return [round(x.grad.min().item() / 80, 2), round(x.grad.max().item() / 80, 2)]

    gives([36.0, 36.0], scenario, device)


def test_eight_threads_with_custom_functions_and_hooks(device: str) -> None:
    x = lucid_gpu.ones(50, device=device).requires_grad_()
    seen: list[int] = []
    x.register_hook(lambda g: seen.append(1))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(2))

    def work(i: int) -> None:
        for _ in range(20):
            Same.apply(Same.apply(x) * 2).sum().backward()

    in_threads(8, work)
    assert x.grad.tolist() == [320.0] * 50
    assert (seen.count(1), seen.count(2)) == (160, 160)


def test_threads_ask_for_gradients_of_one_intermediate(device: str) -> None:
    x = lucid_gpu.ones(50, device=device).requires_grad_()
    found: list[Any] = []

    def work(i: int) -> None:
        for _ in range(10):
            h = x * (i + 1)
            (g,) = lucid_gpu.autograd.grad((h * h * x).sum(), h)
            found.append((i, g.tolist()))

    in_threads(8, work)
    assert all(g == [2.0 * (i + 1)] * 50 for i, g in found) and len(found) == 80


def test_a_pass_knows_only_its_own_thread(device: str) -> None:
    seen: list[Any] = []
    x = leaf(lucid_gpu, device, 1.0)
    y = x * 2

    def look(g: Any) -> None:
        other: list[Any] = []
        thread = threading.Thread(target=lambda: other.append(state.task))
        thread.start()
        thread.join()
        seen.append((state.task is None, other))

    y.register_hook(look)
    y.backward()
    assert seen == [(False, [None])]
    assert state.task is None


# --- errors ---------------------------------------------------------------------------------------


def failing(m: Any) -> Any:
    class Fails(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ValueError("mine")

    return Fails


@pytest.mark.parametrize("by", ["backward", "grad", "create_graph"])
def test_an_exception_in_a_users_backward_leaves_the_engine_usable(by: str, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        y = (failing(m).apply(x) * x).sum()
        with pytest.raises(ValueError, match="mine"):
            if by == "backward":
                y.backward()
            else:
                m.autograd.grad(y, x, create_graph=by == "create_graph")
        still = m.is_grad_enabled()
        x.grad = None
        (x * x).sum().backward()
        return still, x.grad

    gives([True, [2.0, 4.0]], scenario, device)


def test_an_exception_in_a_users_backward_frees_the_graph(device: str, without_gc: None) -> None:
    function = failing(lucid_gpu)
    x = leaf(lucid_gpu, device, 1.0)
    h = x.exp()
    y = function.apply(h)
    z = (y * h).sum()
    died = [weakref.ref(t.grad_fn) for t in (h, y, z)] + [weakref.ref(h), weakref.ref(y)]
    with contextlib.suppress(ValueError):
        z.backward()
    h = y = z = None
    assert [r() for r in died] == [None] * 5


def test_an_exception_deep_in_a_nest_frees_the_graph(device: str) -> None:
    f = nesting(lucid_gpu)
    f.limit = 50
    f.bottom = staticmethod(lambda g: 1 / 0)
    y = f.apply(leaf(lucid_gpu, device, 1.0), 0)
    died = weakref.ref(y.grad_fn)
    with pytest.raises(ZeroDivisionError):
        y.backward()
    y = None
    gc.collect()
    assert died() is None


def test_leaves_reached_before_an_error_keep_their_gradients(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, w = leaf(m, device, 1.0), leaf(m, device, 2.0)
        y = failing(m).apply(x)
        (y * 2 + w * 3).sum()
        z = w * 3
        with pytest.raises(ValueError):
            (y + z).sum().backward()
        w.grad = None
        (w * 5).sum().backward()
        return x.grad, w.grad

    gives([None, [5.0]], scenario, device)


def test_a_keyboard_interrupt_passes_unchanged(device: str) -> None:
    x = leaf(lucid_gpu, device, 1.0)
    y = x * 2

    def interrupt(g: Any) -> None:
        raise KeyboardInterrupt

    handle = y.register_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        y.backward(retain_graph=True)
    handle.remove()
    assert state.task is None and lucid_gpu.is_grad_enabled()
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_packages_start_a_pass_by_the_engine(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        run = m.autograd.Variable._execution_engine.run_backward
        x = m.tensor([2.0], device=device, requires_grad=True)
        found = run((x * x,), (m.ones(1, device=device),), False, False, (x,), True, False)
        before = x.grad
        run((x * 3,), (m.ones(1, device=device),), False, False, (), True, accumulate_grad=True)
        return found, before, x.grad

    gives([[[4.0]], None, [3.0]], scenario, device)


# --- what runs at the end of a pass ---------------------------------------------------------------


def ended(m: Any, how: str) -> list[Any]:
    queue = m.autograd.Variable._execution_engine.queue_callback
    log: list[Any] = []
    x = m.ones(2, requires_grad=True)

    class Noted(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            log.append("node")
            queue(lambda: log.append(("end", x.grad is not None, m.is_grad_enabled())))
            if how == "nested":
                queue(lambda: queue(lambda: log.append("end of ends")))
            if how == "inside":
                y = m.ones(1, requires_grad=True)
                y.register_hook(lambda _: queue(lambda: log.append("end of the inner")))
                with m.enable_grad():
                    y.sum().backward()
            return g

    loss = Noted.apply(Noted.apply(x)).sum()
    if how == "grad":
        m.autograd.grad(loss, x)
    else:
        loss.backward()
    return log


@pytest.mark.parametrize("how", ["backward", "grad", "nested", "inside"])
def test_queued_calls_run_at_the_end_of_their_pass(how: str) -> None:
    first, *others = [ended(m, how) for m, _ in modules()]
    assert all(other == first for other in others)


def test_calls_are_queued_while_a_pass_runs_only() -> None:
    for m, _ in modules():
        with pytest.raises(RuntimeError, match="only be installed during backward pass"):
            m.autograd.Variable._execution_engine.queue_callback(print)


def hooks_set_in_backward(m: Any) -> Any:
    set_inside = m.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    x = m.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: set_inside.__enter__())
    y.sum().backward()
    seen = []
    with m.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        x.sin()
    return len(seen)


def both_figures(m: Any) -> Any:
    x = m.tensor([[1.0, 2.0, 4.0], [0.0, 3.0, 3.0]], requires_grad=True)
    answers = []
    for name in ("var_mean", "std_mean"):
        spread, mean = getattr(m, name)(x, 1)
        assert spread.grad_fn is mean.grad_fn
        shown = []
        mean.grad_fn.register_prehook(
            lambda gs, shown=shown: shown.append([g.tolist() for g in gs])
        )
        (slope,) = m.autograd.grad((spread * mean).sum(), x)
        (alone,) = m.autograd.grad(getattr(m, name)(x, 1)[1].sum(), x)
        name_and_outputs = mean.grad_fn.name(), spread.output_nr, mean.output_nr
        answers.append((name_and_outputs, shown, slope.tolist(), alone.tolist()))
        one = m.tensor([[3.0], [4.0]], requires_grad=True)  # the spread's slope is NaN there
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean = getattr(m, name)(one, 1)[1]
        (slope,) = m.autograd.grad(mean.sum(), one, create_graph=True)
        answers.append((slope.tolist(), slope.requires_grad))
    return answers


def order_of_what_sees_a_leafs_gradient(m: Any) -> Any:
    x = m.ones(3, requires_grad=True)
    node = x.view_as(x).grad_fn.next_functions[0][0]
    node.register_prehook(lambda gs: (gs[0].div(5.0),))
    x.register_hook(lambda g: g.sub(2.0))

    def add(t: Any) -> None:
        t.grad.add_(0.5)

    x.register_post_accumulate_grad_hook(add)
    node.register_hook(lambda _, gs: setattr(x, "grad", gs[0].mul(10)))
    x.sum().backward()
    return x.grad.tolist()


def passes_by_number(m: Any) -> Any:
    c = internals if m is lucid_gpu else m._C
    seen = [c._current_graph_task_id()]
    x = m.ones(2, requires_grad=True)
    y = x * 3
    other = y.cos()
    z = (y * y).sum()

    def look(_: Any) -> None:
        nodes = (y.grad_fn, z.grad_fn.next_functions[0][0], other.grad_fn)
        seen.append(
            [c._current_graph_task_id(), c._autograd._get_current_graph_task_keep_graph()]
            + [c._will_engine_execute_node(n) for n in nodes]
        )

    y.register_hook(look)
    z.backward(retain_graph=True)
    m.autograd.grad(z, y, retain_graph=True)
    z.backward()
    first = seen[1][0]
    return [[number - first, *rest] for number, *rest in seen[1:]], seen[0]


@pytest.mark.parametrize(
    "scenario",
    [
        both_figures,
        hooks_set_in_backward,
        order_of_what_sees_a_leafs_gradient,
        passes_by_number,
    ],
)
def test_scenarios_are_as_in_torch(scenario: Any) -> None:
    mine, other = scenario(lucid_gpu), scenario(torch_module())
    if scenario is both_figures:
        for (names, *numbers), (names_of_torch, *wanted) in zip(mine, other, strict=True):
            assert names == names_of_torch
            for got, want in zip(numbers, wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    else:
        assert mine == other or mine == pytest.approx(other)
