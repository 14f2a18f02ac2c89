"""Long graphs, and that nothing outlives its last user."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from lucid_gpu.cuda import pending
from tests.autograd.functions import exponential
from tests.slow import slow_but

LENGTH = 150_000


class Same(Function):
    """A node of its own, whatever fusing does."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x + 0.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


def chain_of_functions(x: Any, length: int) -> Any:
    y = x
    for _ in range(length):
        y = Same.apply(y)
    return y


def chain_of_views(x: Any, length: int) -> Any:
    y = x
    for _ in range(length):
        y = y.reshape(1)
    return y


def chain_of_products(x: Any, length: int) -> Any:
    y = x
    for _ in range(length):
        y = y * 1.0000001 + 0.0
    return y


@pytest.mark.parametrize(
    "build", slow_but([chain_of_functions, chain_of_products], chain_of_products)
)
def test_a_chain_of_150_000_nodes_goes_backward(build: Any, device: str, without_gc: None) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = build(x, LENGTH)
    y.backward()
    assert x.grad.item() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(
    "build", slow_but([chain_of_functions, chain_of_views, chain_of_products], chain_of_views)
)
def test_a_chain_of_150_000_nodes_is_freed_without_going_backward(
    build: Any, device: str, without_gc: None
) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = build(x * 2, LENGTH)
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_a_long_chain_of_sums_goes_backward(device: str, without_gc: None) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y.sum(0, keepdim=True)
    y.backward()
    assert x.grad.item() == 1


def test_a_wide_graph(device: str) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    parts = [Same.apply(x) for _ in range(20_000)]
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    total.backward()
    assert x.grad.item() == 20_000


def test_a_graph_of_diamonds_is_walked_once(device: str) -> None:
    x = lucid_gpu.ones(1, device=device, requires_grad=True)
    y = x
    for _ in range(60):
        a = Same.apply(y)
        y = (a + a.reshape(1)) * 0.5
    y.backward()
    assert x.grad.item() == pytest.approx(1)


# --- nothing leaks --------------------------------------------------------------------------------


def simple(x: Any) -> Any:
    return (x * x).exp()


def realized(x: Any) -> Any:
    y = (x * x).exp()
    y.tolist()
    return y


def product(x: Any) -> Any:
    return (x.reshape(1, -1) @ x.reshape(-1, 1)).tanh()


def reduced(x: Any) -> Any:
    return x.tanh().sum() * x


def view(x: Any) -> Any:
    return (x * 2)[1:].reshape(-1)


def written(x: Any) -> Any:
    y = x * 2
    y.mul_(x)
    y[0] = 3
    return y


def written_view(x: Any) -> Any:
    y = x * 2
    y[1:].mul_(3)
    return y


def hooked(x: Any) -> Any:
    h = x * 2
    y = h.exp()
    h.register_hook(lambda g: g * 2)
    h.retain_grad()
    return y


class KeepsOutputAsAttribute(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.y


class SavesViewOfOutput(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y.view(-1))
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * y.view(g.shape)


class SavesInput(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x


CASES = [simple, realized, product, reduced, view, written, written_view, hooked]
FUNCTIONS = [exponential(lucid_gpu), KeepsOutputAsAttribute, SavesViewOfOutput, SavesInput]
USES = ["dropped", "read", "backward", "backward kept", "second order"]


def use(y: Any, x: Any, how: str) -> None:
    if how == "read":
        y.tolist()
    elif how.startswith("backward"):
        y.sum().backward(retain_graph=how.endswith("kept"))
    elif how == "second order":
        (g,) = lucid_gpu.autograd.grad(y.sum(), x, create_graph=True)
        if g.requires_grad:
            g.sum().backward()
    if x.grad is not None:
        x.grad.tolist()  # a pending gradient reads what was saved


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_a_graph_dies_with_its_last_tensor(
    case: Any, how: str, device: str, without_gc: None
) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    y = case(x)
    tensor, node = weakref.ref(y), weakref.ref(y.grad_fn)
    leaf = weakref.ref(x)
    use(y, x, how)
    del y
    assert tensor() is None
    assert node() is None
    del x
    assert leaf() is None


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_function_dies_with_its_last_tensor(function: Any, how: str, device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    y = function.apply(x)
    tensor, node = weakref.ref(y), weakref.ref(y.grad_fn)
    cell = weakref.ref(y._cell())
    use(y, x, how)
    del y
    gc.collect()
    assert tensor() is None
    assert node() is None
    assert cell() is None


def test_backward_frees_what_was_saved_though_the_output_lives(device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    h = x.exp()
    h.tolist()
    cell = weakref.ref(h._expr.leaves[0])
    y = (h * h).sum()
    del h
    assert cell() is not None
    y.backward()
    x.grad.tolist()
    assert cell() is None
    assert y.item() > 0


def test_a_realized_value_lets_go_of_what_its_gradient_does_not_need(device: str) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    h = x * 2
    h.tolist()
    cell = weakref.ref(h._expr.leaves[0])
    y = h + 1
    del h
    y.tolist()
    assert cell() is None
    y.sum().backward()


def test_a_training_loop_holds_a_constant_number_of_objects(device: str, own_heap: None) -> None:
    w = lucid_gpu.rand(5, 5, device=device, requires_grad=True)
    counts = []
    for i in range(30):
        x = lucid_gpu.rand(3, 5, device=device)
        loss = ((x @ w).tanh() - 1).square().mean()
        loss.backward()
        with lucid_gpu.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        if i >= 20:
            pending._noted.tensors()  # forgets the dead, as it does by and by once streams are used
            gc.collect()
            counts.append(len(gc.get_objects()))
    assert max(counts) - min(counts) < 60


def test_a_loss_summed_over_steps_does_not_keep_them_when_detached(device: str) -> None:
    w = lucid_gpu.rand(5, device=device, requires_grad=True)
    total = lucid_gpu.zeros((), device=device)
    nodes = []
    for _ in range(300):
        loss = (w * w).sum()
        nodes.append(weakref.ref(loss.grad_fn))
        total += loss.detach()
    del loss
    assert all(n() is None for n in nodes)
    np.testing.assert_allclose(total.item(), 300 * float((w * w).sum()), rtol=1e-5)


def test_a_leaf_and_the_gradient_nobody_read_go_together(device: str, without_gc: None) -> None:
    for build in (simple, product, reduced, exponential(lucid_gpu).apply):
        x = lucid_gpu.rand(4, device=device, requires_grad=True)
        build(x).sum().backward()
        cell, node = weakref.ref(x._expr.leaves[0]), weakref.ref(x._edge()[0])
        del x
        assert cell() is None and node() is None


# --- threads --------------------------------------------------------------------------------------


def test_backward_from_several_threads_adds_up(device: str) -> None:
    x = lucid_gpu.ones(1000, device=device, requires_grad=True)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                own = lucid_gpu.ones(1000, device=device, requires_grad=True)
                (own * x.detach()).tanh().sum().backward()
                assert own.grad is not None
                own.grad.tolist()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_graphs_are_built_on_one_thread_and_run_on_another(device: str) -> None:
    x = lucid_gpu.ones(3, device=device, requires_grad=True)
    y = (x * 2).exp().sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    np.testing.assert_allclose(x.grad.tolist(), [2 * np.exp(2.0)] * 3, rtol=1e-6)


LARGE = 20_000
KEEP_INDICES: dict[str, Any] = {
    "getitem": lambda x, index: x[index],
    "mask": lambda x, index: x[x.detach() > 0],
    "gather": lambda x, index: x.gather(0, index),
    "index_select": lambda x, index: x.index_select(0, index),
    "index_put": lambda x, index: x.index_put((index,), x),
    "index_add": lambda x, index: x.index_add(0, index, x),
    "scatter": lambda x, index: x.scatter(0, index, x),
    "take": lambda x, index: x.take(index),
    "sort": lambda x, index: x.sort()[0],
    "topk": lambda x, index: x.topk(LARGE)[0],
    "cummax": lambda x, index: x.cummax(0)[0],
    "embedding": lambda x, index: lucid_gpu.nn.functional.embedding(index, x[:, None]),
    "max_pool1d": lambda x, index: lucid_gpu.nn.functional.max_pool1d(x[None], 2),
}


@pytest.mark.parametrize("name", KEEP_INDICES)
def test_losses_in_a_list_keep_no_index_arrays(name: str, device: str) -> None:
    x = lucid_gpu.linspace(-1, 1, LARGE, device=device).requires_grad_()

    def loss() -> Any:
        index = lucid_gpu.arange(LARGE, device=device).flip(0)
        result = KEEP_INDICES[name](x, index).sum()
        result.backward()
        return result

    tracemalloc.start()
    try:
        losses = [loss() for _ in range(8)]  # what is planned and made once
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        losses += [loss() for _ in range(5)]
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 2 * LARGE, f"{kept} bytes of 5 steps"


def test_what_a_second_backward_says_after_ops_with_indices(device: str) -> None:
    x = lucid_gpu.arange(4.0, device=device).requires_grad_()
    index = lucid_gpu.tensor([2, 0], device=device)
    for op in (lambda: x[index], lambda: x.sort()[0], lambda: x.take(index)):
        y = op()
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
            y.sum().backward()


def test_an_index_is_saved_for_the_gradient_of_the_source_alone(device: str) -> None:
    x = lucid_gpu.arange(4.0, device=device).requires_grad_()
    index = lucid_gpu.tensor([2, 0], device=device)
    y = x.index_add(0, index, lucid_gpu.ones(2, device=device))
    index.zero_()
    y.sum().backward()
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 4
