"""How many kernels compute each value of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lucid_gpu.fusion import realize
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.tape.native import core

GIVEN = ("load", "index", "scalar", "constant")
MOVED = ("narrow", "identity", "cast")  # they compute nothing


class Counted:
    """Which kernels ran, by the values that they computed, each told by how it was made.

    Attributes
    ----------
    kernels : Counter
        For each value, how many kernels computed it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels: Counter[Any] = Counter()
        self.known: dict[Any, Any] = {}  # the value that an array holds
        self.arrays: list[Any] = []  # they live, so that no other lies where one lay
        execute = realize.execute

        def counted(plan: Plan, leaves: Sequence[Any]) -> list[Any]:
            read = [leaves[leaf].array for leaf in plan.read]
            numbers = [leaves[leaf].array for leaf in plan.numbers]
            results = execute(plan, leaves)
            self.kernel(plan, read, numbers, results)
            return results

        monkeypatch.setattr(realize, "execute", counted)

    def kernel(self, plan: Plan, read: Sequence[Any], numbers: Any, results: Any) -> None:
        values = self.values(plan, read, numbers)
        own, wholes = plan.stores, plan.wholes
        stored = [values[store.index] for store in (*wholes, *own)]
        if plan.reduction is not None:
            rows, row = iter(plan.reduction.rows), ""
            for number, store in enumerate(own, len(wholes)):
                row = row if store.result else next(rows)
                stored[number] = row, store.result, plan.reduction.axes, stored[number]
            self.kernels.update(stored[len(wholes) :])
        self.known.update(zip(map(self.place, results), stored))
        if plan.tail is not None:
            rest = iter(read[len(plan.loads) :])
            inputs = [next(rest) if s is None else results[s] for s in plan.tail.sources]
            tail, left = plan.tail.plan, numbers[len(plan.scalars) :]
            self.kernel(tail, inputs, left, results[len(stored) :])

    def values(self, plan: Plan, read: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """What each instruction of a plan gives."""
        values: list[Any] = []
        for op, args, dtype, shape, _, number in plan.instructions:
            if op == "load":
                array = read[number]
                value = self.known.get(self.place(array)) or ("given", array.tobytes())
            elif op in GIVEN:
                given = {"scalar": numbers, "constant": plan.constants, "index": plan.indices}[op]
                value = op, str(given[number])
            else:
                value = op, dtype, shape, *[values[a] for a in args]
            values.append(value if type(value) is int else hash(value))
        self.kernels.update(
            {v for v, i in zip(values, plan.instructions) if i.op not in GIVEN + MOVED}
        )
        return values

    def place(self, array: Any) -> Any:
        """Where an array lies."""
        self.arrays.append(array)
        return array.__array_interface__["data"][0], array.shape, array.strides


def counted(monkeypatch: pytest.MonkeyPatch, program: Callable[[], Any]) -> Counter[Any]:
    """Return how many kernels compute each value of a program; all are run by Python."""
    if core is not None:
        core.close(True)
    try:
        with monkeypatch.context() as patch:
            found = Counted(patch)
            program()
    finally:
        if core is not None:
            core.close(False)
    return found.kernels
