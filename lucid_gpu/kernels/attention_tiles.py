"""What forward and gradients of attention in tiles share: shapes, strides and template arguments.

`lucid_attention` of ``attention.cuh`` is packed here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lucid_gpu.dtypes import bfloat16, dtype, float16, float32
from lucid_gpu.launch.arguments import number_fields

__all__ = ["ACCESS", "FORM", "WIDTHS", "Layout", "Problem", "Tiles", "Typed", "templates"]

WIDTHS = (32, 64, 96, 128)  # of heads; those between are padded
ACCESS = 16  # bytes, where all rows begin at a multiple of them
LOG2_E = math.log2(math.e)
FORM = "24q 6i 2f"  # of the structure `at`: strides of eight arrays, sizes, scales

Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape, and strides in bytes
Typed = tuple[tuple[int, ...], tuple[int, ...], Any]  # and NumPy's type


class Tiles(NamedTuple):
    """Rows of a block's own tile and of those it walks."""

    own: int
    other: int


Table = Mapping[bool, Mapping[int, Tiles]]  # by the kind of products, and the width of heads


def _template(d: dtype, width: int, access: int, tensor: bool, table: Table) -> dict[str, Any]:
    own, other = table[tensor][width]
    return {"T": d, "D": width, "M": own, "N": other, "W": access, "MMA": int(tensor)}


def templates(table: Table) -> Iterator[dict[str, Any]]:
    """Template arguments of a kernel's instances that are compiled beforehand."""
    for d, access, tensor, widths in (
        (float32, 4, False, WIDTHS),
        (bfloat16, 8, True, WIDTHS),
        (float16, 8, False, (64,)),
        (float16, 1, True, (32,)),
    ):
        for width in widths:
            yield _template(d, width, access, tensor, table)


class Problem(NamedTuple):
    """Attention of certain sizes, in memory of certain strides.

    Attributes
    ----------
    d : dtype
    width, access : int
        Columns that a head is padded to, and how many elements are moved at once.
    tensor : bool
        Tensor cores multiply.
    batch, heads, groups, queries, keys : int
    at : bytes
        The structure of strides, sizes and scales.
    """

    d: dtype
    width: int
    access: int
    tensor: bool
    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    at: bytes

    @classmethod
    def of(
        cls,
        layouts: tuple[Typed | None, ...],
        scale: float,
        causal: bool,
        d: dtype,
        tensor: bool,
        aligned: bool,
    ) -> Problem:
        """Describe arrays that lie so; ``layouts`` are those of `FORM`, None where there is none."""
        present = [layout for layout in layouts if layout is not None]
        (batch, heads, queries, columns), (_, groups, keys, _) = [s for s, _, _ in present[:2]]
        aligned = aligned and columns * d.itemsize % ACCESS == 0
        aligned = aligned and not any(step % ACCESS for _, steps, _ in present for step in steps[:3])
        steps: list[int] = []
        for layout in layouts:
            steps += (0, 0, 0) if layout is None else [step // d.itemsize for step in layout[1][:3]]
        sizes = (heads, heads // groups, queries, keys, columns, int(causal))
        scales = [*number_fields(scale * LOG2_E, float32), *number_fields(scale, float32)]
        at = struct.pack(f"={FORM}", *steps, *sizes, *scales)
        width = next(w for w in WIDTHS if w >= columns)
        access = ACCESS // d.itemsize if aligned else 1
        return cls(d, width, access, tensor, batch, heads, groups, queries, keys, at)

    def template(self, table: Table) -> dict[str, Any]:
        """Template arguments of a kernel with such tiles."""
        return _template(self.d, self.width, self.access, self.tensor, table)
