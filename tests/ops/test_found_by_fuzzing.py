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


def outcome(call: Callable[[], Any]) -> Any:
    """The name of the error, or the value of one element."""
    try:
        return call().item()
    except (IndexError, RuntimeError) as error:
        return type(error).__name__


def zeroth_power(m: Any, where: str) -> Any:
    x = m.tensor([1 + 2j, 3 - 1j], device=where).requires_grad_()
    y = m.pow(x * 1, 0)
    y.tolist()
    (found,) = m.autograd.grad((y * y).abs().sum(), x)
    return [found.abs().tolist()]


def cross_entropy_of_nothing(m: Any, where: str) -> Any:
    x = empty(m, where, "float32", 0, 3).requires_grad_()
    m.nn.functional.cross_entropy(x, empty(m, where, "int64", 0)).backward()
    return [*x.grad.shape]


def gathered_nothing(m: Any, where: str) -> Any:
    x = empty(m, where, "float32", 0, 3).requires_grad_()
    y = x.gather(0, empty(m, where, "int64", 0, 3))
    view = y._is_view()
    y.zero_()  # a view of a leaf would be refused
    return [view, x.requires_grad and x.grad is not None, y.requires_grad]


def written_row(m: Any, where: str) -> Any:
    x = m.tensor([0.0, 1.0, 2.0, 3.0], device=where).requires_grad_()
    base = x * 1
    base.expand(2, 4)[-2, m.tensor([0, 2], device=where)] *= 2
    (found,) = m.autograd.grad(base.sum(), x)
    return [x.tolist(), found.tolist()]


def picked_of_a_number(m: Any, where: str, at: list[int]) -> Any:
    index = m.tensor(at, dtype=m.int64, device=where)
    return outcome(lambda: m.tensor(3.0, device=where).index_select(0, index))


def written_after(m: Any, where: str, f: Callable[[Any], Any]) -> list[float]:
    x = m.ones(1, 1, 1, 1, device=where)
    f(x).zero_()
    found: list[float] = x.reshape(-1).tolist()
    return found


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
    "the zeroth power of complex numbers, read before backward": ([[0.0, 0.0]], zeroth_power),
    "cross entropy of no rows": ([0, 3], cross_entropy_of_nothing),
    "gather by no positions is no view": ([False, False, True], gathered_nothing),
    "one of several equal rows written by positions": (
        [[0.0, 1.0, 2.0, 3.0], [2.0, 1.0, 2.0, 1.0]],
        written_row,
    ),
    "positions of a number": (
        ["RuntimeError", "RuntimeError", "IndexError", 3.0],
        lambda m, w: [picked_of_a_number(m, w, at) for at in ([], [0, 0], [1], [0])],
    ),
    "a number rolled and turned": (
        ["IndexError", "IndexError", 3.0, 3.0, 3.0],
        lambda m, w: [
            outcome(lambda: m.tensor(3.0, device=w).roll(1, 0)),
            outcome(lambda: m.tensor(3.0, device=w).flip(1)),
            *[
                f(m.tensor(3.0, device=w)).item()
                for f in (lambda x: x.flip(0), lambda x: x.flip(-1))
            ],
            m.tensor(3.0, device=w).roll(1).item(),
        ],
    ),
    "tangents turned in no dimension": (
        [[1.0, 1.0]],
        lambda m, w: [
            m.func.jvp(lambda x: x.flip(()), *[(m.ones(2, device=w),)] * 2)[1].tolist(),
        ],
    ),
    "logit of integers": (
        [["nan", "nan", "-inf", "inf"]] * 2,
        lambda m, w: [
            [str(v) for v in m.tensor([3, 2, 0, 1], dtype=kind, device=w).logit().tolist()]
            for kind in (m.uint8, m.int64)
        ],
    ),
    "softmax of a number an example": (
        [[1.0, 1.0], [0.0, 0.0], [[1.0, 1.0]]],
        lambda m, w: [
            m.func.vmap(lambda x: x.softmax(0))(m.ones(2, device=w)).tolist(),
            m.func.vmap(lambda x: x.log_softmax(-1))(m.ones(2, device=w)).tolist(),
            m.func.vmap(m.func.vmap(lambda x: x.softmax(0)))(m.ones(1, 2, device=w)).tolist(),
        ],
    ),
    "absolute values of complex numbers in place": (
        ["RuntimeError"],
        lambda m, w: [outcome(m.tensor([3 + 4j], device=w).abs_)],
    ),
    "types of numbers between which lerp goes": (
        [4, 2, 8, 4],  # bytes: of 0 dimensions alone, all are promoted
        lambda m, w: [
            m.lerp(
                m.ones([2] * rank, dtype=d, device=w),
                m.ones((), dtype=d, device=w),
                m.ones((), dtype=other, device=w),
            ).element_size()
            for d, other in ((m.float16, m.bfloat16), (m.float32, m.float64))
            for rank in (0, 1)
        ],
    ),
    "shuffles that move nothing give no views": (
        [[1.0], [1.0], [1.0]],
        lambda m, w: [
            written_after(m, w, f)
            for f in (
                lambda x: m.nn.functional.pixel_shuffle(x, 1),
                lambda x: m.nn.functional.pixel_unshuffle(x, 1),
                lambda x: m.nn.functional.channel_shuffle(x, 1),
            )
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_found(name: str, device: str) -> None:
    gives(CASES[name][0], CASES[name][1], device)
