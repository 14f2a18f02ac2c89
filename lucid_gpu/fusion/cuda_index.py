"""Index arithmetic of generated kernels: where operands lie, how many elements one access moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lucid_gpu.core.layout import Shape, reach
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_source import Size, Work, c_type, call_element

IN_FLIGHT = 64  # bytes a thread asks for before it computes
ACCESS = 16  # bytes one thread moves at once
BODY = 512  # instructions an unrolled loop may hold
SHORT = 1 << 30  # sizes up to which an index is 32 bits wide


class Indices:
    """Index arithmetic of one kernel: the integer type, and the sizes it has to be given.

    ``I`` is the C type of indices; ``sizes`` collects the parameters as they come into use.
    """

    def __init__(self, long_index: bool) -> None:
        self.type = "long long" if long_index else "int"
        self.letter = "q" if long_index else "i"
        self.sizes: list[Size] = []

    def size(self, name: str, value: int) -> None:
        self.sizes.append(Size(f"{self.type} {name}", self.letter, (value,)))

    def split(
        self, index: str, names: tuple[str, str, str], extents: Shape, needed: set[int]
    ) -> tuple[list[str], list[str]]:
        """Coordinates of a linear index, by division from the innermost out.

        Parameters
        ----------
        names : tuple of str
            Prefixes of coordinates, extents and quotients.
        needed : set of int
            The dimensions whose coordinate is used.

        Returns
        -------
        lines, coordinates
        """
        coordinate, extent, quotient = names
        lines = []
        coordinates = [index] * len(extents)
        for g in range(len(extents) - 1, min(needed, default=len(extents)) - 1, -1):
            if g == 0:
                coordinates[0] = index
                break
            n, q, i = f"{extent}{g}", f"{quotient}{g}", f"{coordinate}{g}"
            self.sizes.append(self._divider(n, extents[g]))
            lines.append(f"const {self.type} {q} = {n}.quotient({index});")
            if g in needed:
                lines.append(f"const {self.type} {i} = {n}.rest({index}, {q});")
            coordinates[g], index = i, q
        return lines, coordinates

    def _divider(self, name: str, extent: int) -> Size:
        declaration = f"lucid_divider<{self.type}> {name}"
        if self.letter == "q":
            return Size(declaration, "q", (extent,))
        shift = (extent - 1).bit_length()
        multiplier = (((1 << shift) - extent) << 32) // extent + 1
        return Size(declaration, "III", (extent, multiplier, shift))

    def offset(
        self, name: str, walk: Shape, coordinates: dict[int, str], inner: int, width: int
    ) -> list[str]:
        """The terms of where a walk is, for some dimensions' coordinates.

        Strides are an argument called ``name``, but for 0, and for 1 in the dimension ``inner``,
        where coordinates count packs of ``width``.
        """
        terms = []
        for g, at in coordinates.items():
            if g == inner and walk[g] == 1:
                terms.append(at if width == 1 else f"{at} * {width}")
            elif walk[g]:
                terms.append(f"{at} * {name}.at[{g}]")
                self._strides(name, walk)
        return terms

    def _strides(self, name: str, walk: Shape) -> None:
        declaration = f"lucid_strides<{self.type}, {len(walk)}> {name}"
        if all(size.declaration != declaration for size in self.sizes):
            self.sizes.append(Size(declaration, f"{len(walk)}{self.letter}", walk))


def needs_long(shape: Shape, walks: Sequence[Shape]) -> bool:
    """Do indices need 64 bits?"""
    return math.prod(shape) > SHORT or any(reach(shape, walk) > SHORT for walk in walks)


def vector_width(
    work: Work, types: Sequence[dtype], shape: Shape, walks: Sequence[Shape], inner: int
) -> int:
    """How many neighbors along ``inner`` one access can move, for every operand at once."""
    width = ACCESS // max([d.itemsize for d in types])
    while width > 4 and width * work.operations > BODY:
        width //= 2
    while width > 1 and not _divides(width, shape, walks, inner):
        width //= 2
    return width


def _divides(width: int, shape: Shape, walks: Sequence[Shape], inner: int) -> bool:
    if not shape or shape[inner] % width:
        return False
    for walk in walks:
        if walk[inner] not in (0, 1):
            return False
        if walk[inner] == 1 and any(s % width for g, s in enumerate(walk) if g != inner):
            return False
    return True


class Moves(NamedTuple):
    """How packs are read and written, and how many bytes of them a thread has under way.

    What no cache would hold until it is read again is streamed: read and written once, it makes
    room first, so that what others need (weights, a bias) stays.
    """

    load: str
    store: str
    in_flight: int = IN_FLIGHT


CACHED = Moves("lucid_load", "lucid_store")
STREAMED = Moves("lucid_load_streamed", "lucid_store_streamed")


def stored(work: Work, values: Sequence[str], offset: str, width: int, moves: Moves) -> list[str]:
    """Lines that compute elements and write them; a ``width`` of 0 is an element by itself."""
    numbers = range(len(work.stores))
    if not width:
        return [call_element(work, values, [f"o{i}[{offset}]" for i in numbers])]
    return [
        *[f"lucid_pack<{c_type(d)}, {width}> q{i};" for i, (_, d) in enumerate(work.stores)],
        "#pragma unroll",
        f"for (int k = 0; k < {width}; ++k)",
        "    " + call_element(work, values, [f"q{i}[k]" for i in numbers]),
        *[f"{moves.store}<{width}>(o{i} + {offset}, q{i});" for i in numbers],
    ]


def own_number(kind: str, index: str) -> str:
    """An index as the table's rows take it. Of 32 bits none is a sign: the upper half is 0.

    In a pack it is ``(index) | k``, not a sum: so the compiler sees that four neighbors of a draw
    share the rounds of Philox, and computes them once.
    """
    return f"(long long)(unsigned)({index})" if kind == "int" else f"({index})"


class Reads:
    """How one step of a kernel reads its loads.

    Attributes
    ----------
    once : list of str
        Lines before all loops: values that are the same everywhere.
    lines : list of str
        Lines that move packs.
    values : list of str
        Each load's, then each index's, value in C, of element ``k`` of a pack where it is one.
    """

    def __init__(
        self,
        work: Work,
        walks: Sequence[Shape],
        offsets: dict[Shape, str],
        inner: int,
        width: int,
        kind: str,
    ) -> None:
        self.once: list[str] = []
        self.lines: list[str] = []
        self.values: list[str] = []
        for i, ((d, _), walk) in enumerate(zip(work.loads, walks)):
            element, pointer = c_type(d), f"a{i} + {offsets.get(walk, '')}"
            if not any(walk):
                self.once.append(f"const {element} s{i} = *a{i};  // the same for all")
                self.values.append(f"s{i}")
            elif width == 1:
                self.values.append(f"a{i}[{offsets[walk]}]")
            elif walk[inner] == 0:
                self.lines.append(f"const {element} p{i} = a{i}[{offsets[walk]}];")
                self.values.append(f"p{i}")
            else:
                pack = f"lucid_pack<{element}, {width}>"
                self.lines.append(f"const {pack} p{i} = lucid_load<{width}>({pointer});")
                self.values.append(f"p{i}[k]")
        for walk in walks[len(work.loads) :]:
            offset = offsets[walk] if any(walk) else "0"
            within = f"({offset}) | k" if width > 1 and walk[inner] else offset  # packs are aligned
            self.values.append(own_number(kind, within))


def alignments(
    work: Work, walks: Sequence[Shape], stores: Sequence[dtype], inner: int, width: int
) -> tuple[int, ...]:
    """See `Kernel.aligned`."""
    loads = [
        d.itemsize * (width if any(walk) and walk[inner] else 1)
        for (d, _), walk in zip(work.loads, walks)
    ]
    return tuple(loads + [d.itemsize * width for d in stores])


def repeated(kind: str, name: str, end: str, stride: str, repeat: int, start: str) -> list[str]:
    """Loops that call ``step`` for every ``stride``-th number from ``start`` to ``end``.

    ``repeat`` steps follow each other without a test between, so that their reads are under way
    together.
    """
    single = ["#pragma unroll 1", f"for (; {name} < {end}; {name} += {stride}) step({name});"]
    lines = [f"{kind} {name} = {start};"]
    if repeat == 1:
        return lines + single[1:]
    return [
        *lines,
        f"for (; {name} + {repeat - 1} * {stride} < {end}; {name} += {repeat} * {stride}) {{",
        "    #pragma unroll",
        f"    for (int u = 0; u < {repeat}; ++u) step({name} + u * {stride});",
        "}",
        *single,
    ]
