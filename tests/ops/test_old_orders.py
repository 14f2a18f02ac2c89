"""The orders of arguments that torch has deprecated: numbers before the tensors they multiply."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import torch_module

pytestmark = pytest.mark.filterwarnings("ignore:.*overload of:UserWarning")
SHAPES = {
    "addmm": ((2, 2), (2, 3), (3, 2)),
    "addmv": ((2,), (2, 3), (3,)),
    "addr": ((2, 3), (2,), (3,)),
    "baddbmm": ((2, 2, 2), (2, 2, 3), (2, 3, 2)),
    "addbmm": ((2, 2), (2, 2, 3), (2, 3, 2)),
    "add": ((2, 3), (3,)),
    "sub": ((2, 3), (3,)),
    "addcmul": ((2, 3), (3,), (2, 1)),
    "addcdiv": ((2, 3), (3,), (2, 1)),
}


def operands(m: Any, name: str, grad: bool) -> list[Any]:
    made = []
    for shape in SHAPES[name]:
        size = m.Size(shape).numel()
        made.append((m.arange(size, dtype=m.float64) / 8 + 0.5).reshape(shape).requires_grad_(grad))
    return made


def ordered(m: Any, name: str, how: str, numbers: Any, grad: bool) -> list[Any]:
    """The result and the gradients."""
    x, *rest = leaves = operands(m, name, grad)
    sums = len(SHAPES[name]) == 3 and not name.startswith("addc")
    given = (*numbers[1:], *rest)
    if how == "function":
        first = (numbers[0], x) if sums else (x, numbers[0])
        result = getattr(m, name)(*first, *given)
    else:
        x = x * 1
        result = getattr(x, name + "_" * (how == "in place"))(numbers[0], *given)
    grads = m.autograd.grad(result.sum(), leaves) if grad else ()
    return [result.tolist(), *[g.tolist() for g in grads]]


CASES = [
    (name, how, numbers, grad)
    for name, how, numbers, grad in itertools.product(
        SHAPES, ("function", "method", "in place"), ((2,), (0.5, 3)), (False, True)
    )
    if len(numbers) == 1 or (len(SHAPES[name]) == 3 and not name.startswith("addc"))
]


@pytest.mark.parametrize(("name", "how", "numbers", "grad"), CASES)
def test_numbers_may_stand_before_the_tensors(
    name: str, how: str, numbers: Any, grad: bool
) -> None:
    ours = ordered(lucid_gpu, name, how, numbers, grad)
    theirs = ordered(torch_module(), name, how, numbers, grad)
    assert str(ours) == str(theirs)


def test_a_number_may_be_added_in_the_old_order() -> None:
    for m in (lucid_gpu, torch_module()):
        assert m.add(m.tensor([1, 2]), 2, 3).tolist() == [7, 8]
        assert m.tensor([1.0]).sub_(2, 3).tolist() == [-5.0]
        assert m.add(m.tensor(True), m.tensor(True), True).item() is True


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.add(x, x, 2),
        lambda m, x: m.add(x, 2, x, alpha=3),
        lambda m, x: x.add_(x, x),
        lambda m, x: m.addmm(2, x, x, x, beta=3),
        lambda m, x: m.addmm(2, x, x, x, x),
        lambda m, x: x.addmm(2, 3, 4, x, x),
        lambda m, x: x.addmm(x, x, 2),
    ],
)
def test_other_orders_are_refused(call: Any) -> None:
    for m in (lucid_gpu, torch_module()):
        with pytest.raises(TypeError):
            call(m, m.ones((2, 2)))
