"""Leaves whose array another thread still writes (`lucid_gpu.devices.late`)."""

from __future__ import annotations

from typing import Any

from lucid_gpu.device import CPU
from lucid_gpu.devices.late import Late
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.expression import Cell, Expr, made_here
from lucid_gpu.fusion.program import load_program

__all__ = ["LateCell", "of_late"]


class LateCell(Cell):
    """A leaf that waits for its array when somebody reads it; then it is a plain `Cell`."""

    def __init__(self, late: Late, node: Any = None, output: int = 0) -> None:
        self.late = late
        self.node = node
        self.output = output

    @property
    def array(self) -> Any:
        late = self.__dict__.get("late")
        if late is not None:  # else another thread was faster
            late.end()
            self.array = late.out
        return self.__dict__["array"]

    @array.setter
    def array(self, array: Any) -> None:
        self.__dict__["array"] = array  # first: no thread finds a plain leaf without
        self.__dict__.pop("late", None)
        self.__class__ = Cell  # type: ignore[assignment]

    filled = True

    def twin(self, node: Any = None, output: int = 0) -> Cell:
        return self._shares_with(LateCell(self.late, node, output))


def of_late(late: Late, d: dtype) -> Expr:
    """The expression of a product's result."""
    return Expr(
        load_program(d, late.out.shape, None, False, CPU, made_here()), (LateCell(late),), None
    )
