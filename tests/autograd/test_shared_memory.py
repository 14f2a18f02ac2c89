"""Tensors that share memory but not history, and histories that share a write."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from tests.oracle import gives


def test_a_detached_alias_stays_out_of_the_graph_of_a_later_write(device: str) -> None:
    w = lucid_gpu.tensor([2.0, 3.0], device=device, requires_grad=True)
    h = w * 2
    alias = h.detach()
    h.mul_(3)
    assert not alias.requires_grad
    assert alias.tolist() == [12.0, 18.0]
    h.sum().backward()
    assert w.grad.tolist() == [6.0, 6.0]


def test_a_detached_leaf_may_be_written_with_what_requires_grad(device: str) -> None:
    leaf = lucid_gpu.ones(2, device=device, requires_grad=True)
    w = lucid_gpu.tensor([2.0, 3.0], device=device, requires_grad=True)
    alias = leaf.detach()
    alias.mul_(w)
    assert leaf.tolist() == [2.0, 3.0]
    alias.sum().backward()
    assert w.grad.tolist() == [1.0, 1.0]
    assert leaf.grad is None


def test_a_function_that_writes_a_view_reaches_the_base(device: str) -> None:
    class Double(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * 2

    x = lucid_gpu.ones(4, device=device, requires_grad=True)
    base = x * 1
    Double.apply(base[:2])
    base.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 1.0, 1.0]


def test_a_view_made_under_no_grad_refuses_a_recorded_write(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    base = x * 1
    with lucid_gpu.no_grad():
        view = base[:1]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.mul_(x[:1])


def test_data_shares_memory_after_assignment(device: str) -> None:
    p = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    value = lucid_gpu.zeros(2, device=device)
    p.data = value
    value.add_(1)
    assert p.tolist() == [1.0, 1.0]
    assert p.requires_grad
    assert p.is_leaf


def test_data_may_be_set_to_itself(device: str) -> None:
    """A write after it is one write, and marks nothing that is read later."""
    w = lucid_gpu.ones(4, device=device).requires_grad_()
    w.data = w.data
    optimizer = lucid_gpu.optim.SGD([w], lr=0.1)
    for _ in range(3):
        x = lucid_gpu.rand(2, 4, device=device).requires_grad_()
        z = x @ lucid_gpu.eye(4, device=device)
        ((z - z.mean(1, keepdim=True)) * w).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert w._version == 3


def test_data_of_any_output_of_a_node_may_be_set(device: str) -> None:
    def slope(m: Any, where: str, number: int) -> Any:
        class Twice(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.order = 2
                return x * 3, x * 5

            @staticmethod
            def backward(ctx: Any, g: Any, h: Any) -> Any:
                assert ctx.order == 2
                return g * 3 + h * 5

        x = m.ones(2, device=where, requires_grad=True)
        out = Twice.apply(x)[number]
        out.data = m.full((2,), 10.0, device=where)
        out.sum().backward()
        return x.grad

    gives([3.0, 3.0], lambda m, where: slope(m, where, 0), device)
    gives([5.0, 5.0], lambda m, where: slope(m, where, 1), device)


def test_only_what_a_formula_reads_must_be_unchanged(device: str) -> None:
    """A buffer may change once an intermediate was made of it; an operand may not."""
    w = lucid_gpu.tensor([2.0, 3.0], device=device, requires_grad=True)
    mean = lucid_gpu.ones(2, device=device)
    y = (w - mean) * (w - mean)
    mean.add_(1)
    y.sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]
    scale = lucid_gpu.ones(2, device=device)
    y = w * scale
    scale.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_integers_that_do_not_fit_are_refused(device: str) -> None:
    with pytest.raises(OverflowError, match="cannot be converted"):
        lucid_gpu.tensor([1], device=device) + 2**64


@pytest.mark.parametrize("kind", ["constant", "leaf", "result"])
def test_an_array_of_a_detached_value_is_written_and_earlier_readers_keep_it(kind: str) -> None:
    def program(m: Any, _: Any) -> list[Any]:
        x = m.tensor([1.0, 2.0], requires_grad=kind != "constant")
        x = x * 1 if kind == "result" else x
        x.detach().numpy()  # computed, and lent to nobody who stays
        alias = x.detach()
        double, power, more = x * 2, alias * alias, x.detach() + 1
        array = alias.numpy()
        array[:] = 5
        return [double, power, more, x, alias, x.detach() * 2]

    fives = [5.0, 5.0]
    gives([[2.0, 4.0], [1.0, 4.0], [2.0, 3.0], fives, fives, [10.0, 10.0]], program)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_lending_a_detached_value_that_nobody_reads_copies_nothing(requires_grad: bool) -> None:
    x = lucid_gpu.ones(3).requires_grad_(requires_grad)
    alias, value = x.detach(), x.data_ptr()
    array = alias.numpy()
    assert x.data_ptr() == array.ctypes.data == value
    array[:] = 5
    assert x.tolist() == alias.tolist() == [5.0, 5.0, 5.0]
