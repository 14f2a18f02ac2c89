"""The rules of the scheduler, each asked alone; what they do to programs is in test_loops.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.core.node import AccumulateGrad, Node
from lucid_gpu.core.value import Expr
from lucid_gpu.device import CPU
from lucid_gpu.fusion import eager, scheduler
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.tape.modes import state
from tests.fusion.plans import full, leaf, op


def chain(count: int) -> Expr:
    """A value of one array and so many different ops."""
    value = leaf(np.ones(3, np.float32))
    for i in range(count):
        value = op(("tanh", "sin", "exp", "sigmoid")[i % 4], value)
    return value


def running(turns: int, arrays: bool) -> Expr:
    """What a loop keeps: decayed and added to in every turn, with an array of its own or not."""
    value = x = leaf(np.ones(3, np.float32))
    for _ in range(turns):
        x = leaf(np.ones(3, np.float32)) if arrays else x
        value = op("add", op("mul", value, 0.5), op("tanh", x))
    return value


def cut(value: Expr, most: int = scheduler.TURNS) -> Any:
    return scheduler.cut(value.program.instructions, len(value.leaves), most)


def test_values_of_an_earlier_step_are_old() -> None:
    pending, plain, number = chain(2), leaf(np.ones(3)), full(1.0, lucid_gpu.float32, (3,))
    assert scheduler.old([pending, plain, number], True) == []
    scheduler.begin_step()
    assert scheduler.old([pending, plain, number], True) == [pending]
    assert scheduler.old([chain(2)], True) == []


def test_a_written_leaf_is_old_for_recorded_ops_only() -> None:
    value = chain(2)
    value.since = scheduler.LEAF_WRITTEN
    assert scheduler.old([value], True) == [value]
    assert scheduler.old([value], False) == []


def test_nothing_is_old_in_a_pass_back() -> None:
    value = chain(2)
    scheduler.begin_step()
    found = []
    x = lucid_gpu.ones(3, requires_grad=True)
    x.register_hook(lambda g: found.append(scheduler.old([value], True)))
    (x * 2).sum().backward()
    assert found == [[]]
    assert scheduler.old([value], True) == [value]


def test_what_a_kernel_computed_inside_of_a_value_is_old() -> None:
    inner = chain(2)
    outer = op("exp", inner)
    scheduler.mark_computed(outer)
    assert scheduler.old([inner, outer], True) == [inner]
    scheduler.mark_computed(outer, itself=True)
    assert scheduler.old([inner, outer], True) == [inner, outer]


def test_a_program_is_cut_where_a_kernel_is_full() -> None:
    most = scheduler.LIMIT - 1  # one instruction loads
    assert cut(chain(most)) is not scheduler.Cut.FULL
    assert cut(chain(most + 1)) is scheduler.Cut.FULL
    assert not scheduler.fits_a_kernel(1, scheduler.MAX_LEAVES + 1)


@pytest.mark.parametrize("most", [scheduler.TURNS, 8])
def test_turns_that_bring_in_arrays_are_cut_after_so_many(most: int) -> None:
    # The last op begins a turn: it is the ``mul`` of the next one.
    whys = [cut(op("mul", running(turns, True), 0.5), most) for turns in range(1, most + 2)]
    assert whys.index(scheduler.Cut.REPEATS) == most - 1


def test_turns_on_the_same_arrays_go_on_while_they_fit() -> None:
    assert cut(op("mul", running(8, False), 0.5)) is None


def test_where_a_turn_is_complete_all_operands_are_stored() -> None:
    short, long = chain(2), chain(5)
    step = state.step
    assert scheduler.stored_first(scheduler.Cut.FULL, [short, long]) == [long]
    assert state.step == step
    assert scheduler.stored_first(scheduler.Cut.REPEATS, [short, long]) == [short, long]
    assert state.step > step


def test_numbers_stay_that_were_there_in_the_first_step() -> None:
    known: set[Any] = set()
    step = state.step
    assert scheduler.stays(0.5, step, known) and known == {0.5}
    scheduler.begin_step()
    assert scheduler.stays(0.5, step, known)
    assert not scheduler.stays(0.25, step, known)
    assert scheduler.stays(3, step, known, exponent=True)


def test_few_numbers_stay() -> None:
    known: set[Any] = set()
    stay = [scheduler.stays(n, state.step, known) for n in range(scheduler.MOST_NUMBERS + 2)]
    assert stay.count(True) == scheduler.MOST_NUMBERS and not any(stay[-2:])


def test_reductions_wait_beside_those_of_the_same_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    value, other = chain(2), chain(2)
    assert scheduler.may_wait(value, 1, False, [other])
    assert not scheduler.may_wait(value, scheduler.MOST_REDUCTIONS, False, [value])
    assert not scheduler.may_wait(value, 1, True, [value])
    monkeypatch.setattr(scheduler, "LARGE", 3)
    assert not scheduler.may_wait(value, 1, False, [other])
    assert scheduler.may_wait(value, 1, False, [other, op("exp", value)])


def test_what_was_written_is_stored_by_one_kernel_a_shape() -> None:
    x, y = lucid_gpu.ones(4), lucid_gpu.ones(5)
    with eager(False):
        a, b, c = x + 1, x * 2, y + 1
    assert scheduler.kernels_of([a, c, b]) == [[a, b], [c]]


def test_a_value_holds_a_write_twice() -> None:
    x = lucid_gpu.zeros(4)
    held = []
    for _ in range(3):
        held.append(scheduler.full(x, "add_"))
        scheduler.note_write(x, "add_")
    assert held == [False, False, True]
    assert scheduler.take_written() == []  # it is not pending
    assert not scheduler.full(x, "add_")


def test_a_long_cotangent_is_stored_before_a_region() -> None:
    half, more = chain(scheduler.LIMIT // 2 - 1).program, chain(scheduler.LIMIT // 2 + 1).program
    short = chain(scheduler.SUMMED_STEPS // 2).program
    array = leaf(np.ones(3, np.float32)).program

    def first(cotangent: Any, through: Any, *summed_to: Node) -> bool:
        edges = [(node, 0) for node in summed_to]
        facts = SimpleNamespace(summed=[*range(len(edges))])
        node = SimpleNamespace(program=through, _edges=edges, facts=facts)
        return scheduler.cotangent_first(cotangent, node)

    assert first(more, half) and not first(half, half) and not first(array, more)
    assert first(half, half, Node())  # the sum goes on
    assert not first(half, half, AccumulateGrad())
    assert not first(short, half, Node())


def test_small_cotangents_are_computed_again() -> None:
    found = scheduler.worth_storing(CPU, scheduler.STORED_STEPS)
    assert found is costs_of(CPU).stores_shared
    assert not scheduler.worth_storing(CPU, scheduler.STORED_STEPS - 1)
    assert scheduler.is_large((2, scheduler.STORED_FROM // 2))
    assert not scheduler.is_large((scheduler.STORED_FROM - 1,))


def test_memory_of_others_and_eager_mode_are_computed_at_once() -> None:
    with eager(False):
        assert scheduler.at_once(True) and not scheduler.at_once(False)
    with eager():
        assert scheduler.at_once(False)


def test_a_constant_becomes_a_leaf_as_it_is() -> None:
    assert scheduler.leaf_first(chain(1))
    assert not scheduler.leaf_first(full(1.0, lucid_gpu.float32, (3,)))
