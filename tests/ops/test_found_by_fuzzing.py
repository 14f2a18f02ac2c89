"""What random programs found (tools/fuzz_ops.py), a row for each defect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.oracle import gives


def empty(m: Any, where: str, kind: str, *shape: int) -> Any:
    return m.zeros(shape, dtype=getattr(m, kind), device=where)


def kinds(m: Any, where: str, *kinds_and_sizes: str) -> list[Any]:
    """Ones: ``"int16"`` is 0-d, ``"int16 2"`` has two elements."""
    return [
        m.ones([int(n) for n in sizes], dtype=getattr(m, kind), device=where)
        for kind, *sizes in map(str.split, kinds_and_sizes)
    ]


def type_of(t: Any) -> str:
    return str(t.dtype).rpartition(".")[2]


def grads_of_cat(m: Any, where: str) -> Any:
    x, y = [empty(m, where, "float32", *shape).requires_grad_() for shape in ((0,), (2, 3))]
    joined = m.cat((x, y), 1)
    found = m.autograd.grad((joined * 2).sum(), (x, y))
    return [joined.tolist(), [[*g.shape] for g in found], found[1]]


def sum_of_products(*kinds_and_sizes: str, name: str = "addcmul") -> Callable[[Any, str], Any]:
    def scenario(m: Any, where: str) -> Any:
        t = getattr(m, name)(*kinds(m, where, *kinds_and_sizes), value=2.5)
        return [type_of(t), t.tolist()]

    return scenario


LERPED = [[1.0, 1.0], [-float("inf"), 10.0], [-float("inf"), -2.0]]
CASES: dict[str, tuple[Any, Callable[[Any, str], Any]]] = {
    "remainder of nothing by zero": (
        ["uint8", [0, 3]],
        lambda m, w: [
            type_of(t := m.remainder(empty(m, w, "bool", 0, 3), empty(m, w, "uint8"))),
            [*t.shape],
        ],
    ),
    "nothing by zero, rounded down": (
        [[0], [0]],
        lambda m, w: [
            [*m.floor_divide(empty(m, w, "int32", 0), 0).shape],
            [*m.fmod(empty(m, w, "int32", 0), 0).shape],
        ],
    ),
    "addcmul of bools onto bytes": (["uint8", 3], sum_of_products("uint8", "bool", "bool")),
    "addcmul by the ranks of all three": (
        ["int16", [3]],
        sum_of_products("int16", "uint8", "bool 1"),
    ),
    "addcmul onto more dimensions": (
        ["uint8", [3]],
        sum_of_products("uint8 1", "bool 1", "int64"),
    ),
    "addcmul of bools onto 16 bits": (
        ["float16", 3.5],
        sum_of_products("float16", "bool", "bool"),
    ),
    "addcmul of several ranks": (
        ["float32", [3.5]],
        sum_of_products("float32", "float16", "int32 1"),
    ),
    "addcdiv of several ranks": (
        ["float32", [3.5]],
        sum_of_products("float32", "int32 1", "float16", name="addcdiv"),
    ),
    "lerp by a large negative weight": (
        [[True, False], [0, -17]],
        lambda m, w: [
            (t := m.lerp(*[m.tensor(v, device=w) for v in LERPED])).isnan().tolist(),
            t.nan_to_num(0.0).tolist(),
        ],
    ),
    "the type of an empty vector counts in cat": (
        ["uint8", "uint8"],
        lambda m, w: [
            type_of(m.cat(pair))
            for pair in (kinds(m, w, "bool 1", "uint8 0"), kinds(m, w, "uint8 0", "bool 1"))
        ],
    ),
    "the gradient of an empty vector in cat": (
        [[[0, 0, 0], [0, 0, 0]], [[0], [2, 3]], [[2, 2, 2], [2, 2, 2]]],
        grads_of_cat,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_found(name: str, device: str) -> None:
    gives(CASES[name][0], CASES[name][1], device)
