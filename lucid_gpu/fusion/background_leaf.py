"""Leaves whose array another thread still writes (`lucid_gpu.devices.background_matmul`)."""

from __future__ import annotations

from typing import Any

from lucid_gpu.device import CPU
from lucid_gpu.devices.background_matmul import BackgroundMatmul
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.expression import Cell, Expr, made_here
from lucid_gpu.fusion.program import load_program

__all__ = ["BackgroundCell", "of_background"]


class BackgroundCell(Cell):
    """A leaf that waits for its array when somebody reads it; then it is a plain `Cell`."""

    def __init__(self, product: BackgroundMatmul, node: Any = None, output: int = 0) -> None:
        self.product = product
        self.node = node
        self.output = output

    @property
    def array(self) -> Any:
        product = self.__dict__.get("product")
        if product is not None:  # else another thread was faster
            product.end()
            self.array = product.out
        return self.__dict__["array"]

    @array.setter
    def array(self, array: Any) -> None:
        self.__dict__["array"] = array  # first: no thread finds a plain leaf without
        self.__dict__.pop("product", None)
        self.__class__ = Cell  # type: ignore[assignment]

    filled = True

    def twin(self, node: Any = None, output: int = 0) -> Cell:
        return self._shares_with(BackgroundCell(self.product, node, output))


def of_background(product: BackgroundMatmul, d: dtype) -> Expr:
    """The expression of a product's result."""
    return Expr(
        load_program(d, product.out.shape, None, False, CPU, made_here()),
        (BackgroundCell(product),),
        None,
    )
