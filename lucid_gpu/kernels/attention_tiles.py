"""What forward and gradients of attention in tiles share: shapes, strides and template arguments.

`lucid_attention` of ``attention.cuh`` is packed here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.dtypes import bfloat16, dtype, float16, float32, from_numpy_dtype
from lucid_gpu.dtypes import bool as bool_
from lucid_gpu.launch.arguments import number_fields

__all__ = [
    "ACCESS", "FORM", "GIVEN", "LOG2_E", "PLAIN", "TEMPLATE", "TENSOR", "TF32", "WGMMA", "WIDTHS",
    "Described", "Layout", "Problem", "Tables", "Tiles", "Typed",
]  # fmt: skip

WIDTHS = (32, 64, 96, 128, 192, 256)  # of heads; those between are padded
ACCESS = 16  # bytes, where all rows begin at a multiple of them
LOG2_E = math.log2(math.e)
TEMPLATE = "T, D, M, N, W, MMA, B, DROPS"  # B: of the mask, or void
GIVEN = ", const B* mask, long long seed, long long draw, lucid_attention at"  # last parameters
FORM = "27q 7i I 3f 4x"  # of the structure `at`: strides of nine arrays, sizes, limit, scales

Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape, and strides in bytes
Typed = tuple[tuple[int, ...], tuple[int, ...], Any]  # and NumPy's type


class Tiles(NamedTuple):
    """Rows of a block's own tile and of those it walks."""

    own: int
    other: int


PLAIN, TENSOR, TF32, WGMMA = range(4)  # how products are made: MMA of the kernels

# Type, elements an access, kind of products, widths, mask and dropout.
_LISTED: list[tuple[dtype, int, int, tuple[int, ...], dtype | None, bool]] = [
    (float32, 4, PLAIN, WIDTHS, None, False),
    (float32, 4, TF32, WIDTHS, None, False),
    (bfloat16, 8, TENSOR, WIDTHS, None, False),
    (float16, 8, PLAIN, (64,), None, False),
    (float16, 1, TENSOR, (32,), None, False),
    (float32, 4, PLAIN, (64,), float32, True),
    (float32, 4, TF32, (64,), bool_, True),
    (bfloat16, 8, TENSOR, (64, 128), bool_, True),
    (bfloat16, 8, TENSOR, (64,), bfloat16, False),
    (bfloat16, 8, WGMMA, (64, 128), None, False),
    (float16, 8, WGMMA, (64,), bool_, True),
]


class Tables(NamedTuple):
    """Tiles of a kernel by the width of heads, for each kind of products.

    They are others where there is a mask or dropout, which take registers.
    """

    plain: Mapping[int, Tiles]
    plain_ruled: Mapping[int, Tiles]
    tensor: Mapping[int, Tiles]
    tensor_ruled: Mapping[int, Tiles]
    tf32: Mapping[int, Tiles]
    tf32_ruled: Mapping[int, Tiles]
    wgmma: Mapping[int, Tiles] = {}
    wgmma_ruled: Mapping[int, Tiles] = {}

    def template(
        self, d: dtype, width: int, access: int, products: int, mask: dtype | None, drops: bool
    ) -> dict[str, Any]:
        """Template arguments of a kernel."""
        own, other = self[2 * products + (drops or mask is not None)][width]
        return {
            "T": d, "D": width, "M": own, "N": other, "W": access, "MMA": products,
            "B": mask or "void", "DROPS": int(drops),
        }  # fmt: skip

    def templates(self) -> Iterator[dict[str, Any]]:
        """Those of instances that are compiled beforehand."""
        for d, access, products, widths, mask, drops in _LISTED:
            for width in widths:
                if width in self[2 * products]:
                    yield self.template(d, width, access, products, mask, drops)


class Described(NamedTuple):
    """What a launch depends on of the rules of attention: ``p`` of dropout, the mask's layout."""

    scale: float
    causal: bool
    p: float
    mask: Typed | None


class Problem(NamedTuple):
    """Attention of certain sizes, in memory of certain strides.

    Attributes
    ----------
    d : dtype
    width, access : int
        Columns that a head is padded to, and how many elements are moved at once.
    products : int
        `PLAIN`, by tensor cores in 16 bits (`TENSOR`), by them of floats as `TF32`, or in 16 bits
        by Hopper's warp groups (`WGMMA`).
    mask : dtype, optional
        Of the mask.
    drops : bool
        Some weights are dropped.
    batch, heads, groups, queries, keys : int
    at : bytes
        The structure of strides, sizes and scales.
    """

    d: dtype
    width: int
    access: int
    products: int
    mask: dtype | None
    drops: bool
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
        rules: Described,
        d: dtype,
        products: int,
        aligned: bool,
    ) -> Problem:
        """Describe arrays that lie so; ``layouts`` are those of `FORM` but for the mask's."""
        present = [layout for layout in layouts if layout is not None]
        (batch, heads, queries, columns), (_, groups, keys, _) = [s for s, _, _ in present[:2]]
        aligned = aligned and columns * d.itemsize % ACCESS == 0
        aligned = aligned and not any(
            step % ACCESS for _, steps, _ in present for step in steps[:3]
        )
        scale, causal, p, mask = rules
        steps: list[int] = []
        for layout in (*layouts, mask):
            if layout is None:
                steps += (0, 0, 0)
            else:
                steps += [step // layout[2].itemsize for step in layout[1][:3]]
        column = int(mask is not None and mask[1][3] > 0)
        sizes = (heads, heads // groups, queries, keys, columns, int(causal), column)
        limit = max((math.ceil(np.float32(p) * 2.0**24) << 8) - 1, 0)  # `uniform >= p` in float32
        scales = (scale * LOG2_E, scale, 1 / (1 - p) if p < 1 else 0.0)
        at = struct.pack(
            f"={FORM}", *steps, *sizes, limit, *[number_fields(x, float32)[0] for x in scales]
        )
        width = next(w for w in WIDTHS if w >= columns)
        access = ACCESS // d.itemsize if aligned else 1
        kind = None if mask is None else from_numpy_dtype(mask[2])
        return cls(
            d, width, access, products, kind, p > 0, batch, heads, groups, queries, keys, at
        )  # fmt: skip

    def template(self, tables: Tables) -> dict[str, Any]:
        """Template arguments of a kernel with such tiles."""
        return tables.template(
            self.d, self.width, self.access, self.products, self.mask, self.drops
        )
