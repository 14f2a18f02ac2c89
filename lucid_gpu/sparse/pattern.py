"""Where the elements of a sparse tensor stand."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import xp_of
from lucid_gpu.kernels.key_order import places_in_order
from lucid_gpu.tensor import Tensor, from_array


class Places(NamedTuple):
    """What is derived from indices, as long as nobody writes them.

    Attributes
    ----------
    version : int
        Of the indices.
    rows : tuple of Tensor
        The indices of each sparse dimension.
    keys : Tensor
        One number an element: its place in the sparse dimensions, row-major.
    """

    version: int
    rows: tuple[Tensor, ...]
    keys: Tensor


class Grouping(NamedTuple):
    """Elements that stand at one place, together.

    Attributes
    ----------
    pattern : Pattern
        Every place once, in order.
    group : Tensor or None
        For each element the number of its place; None where it is the element's own.
    first : Tensor or None
        For each place one element that stands there.
    """

    pattern: Pattern
    group: Tensor | None
    first: Tensor | None


class Pattern:
    """The places of elements; sparse tensors that differ in values only share one.

    Attributes
    ----------
    indices : Tensor, shape (sparse dimensions, elements), int64
    size : tuple of int
        Of the whole tensor: sparse dimensions first, then those of each value.
    coalesced : bool
        Every place occurs once, in order, and the tensor says so.
    rows_in : dtype, optional
        Elements are in the order of rows, and the tensor shows these compressed, in this type.
    """

    def __init__(
        self,
        indices: Tensor,
        size: tuple[int, ...],
        coalesced: bool,
        rows_in: dt.dtype | None = None,
    ) -> None:
        self.indices = indices
        self.size = size
        self.coalesced = coalesced
        self.rows_in = rows_in
        self._places: Places | None = None
        self._grouping: tuple[int, Grouping] | None = None

    @property
    def sparse_dim(self) -> int:
        return self.indices.shape[0]

    @property
    def count(self) -> int:
        return self.indices.shape[1]

    @property
    def sparse_size(self) -> tuple[int, ...]:
        return self.size[: self.sparse_dim]

    @property
    def dense_size(self) -> tuple[int, ...]:
        return self.size[self.sparse_dim :]

    @property
    def device(self) -> device:
        return self.indices.device

    @property
    def rows(self) -> tuple[Tensor, ...]:
        return self._derived().rows

    @property
    def keys(self) -> Tensor:
        return self._derived().keys

    def _derived(self) -> Places:
        places = self._places
        if places is None or places.version != self.indices._version:
            array = self.indices.array
            rows = tuple([self._tensor(row) for row in array])
            keys = self._tensor(_keys(array, self.sparse_size, xp_of(self)))
            places = self._places = Places(self.indices._version, rows, keys)
        return places

    def _tensor(self, array: Any) -> Tensor:
        return from_array(array, dt.int64, self.device)

    def is_same(self, other: Pattern) -> bool:
        """Whether two patterns have the same places in the same order, without comparing all."""
        return self is other or (self.indices is other.indices and self.size == other.size)

    def grouping(self) -> Grouping:
        """The elements by place."""
        version = self.indices._version
        if self._grouping is None or self._grouping[0] != version:
            self._grouping = (version, self._group())
        return self._grouping[1]

    def _group(self) -> Grouping:
        xp, keys = xp_of(self), self.keys.array
        if bool((keys[1:] > keys[:-1]).all()):
            return Grouping(Pattern(self.indices, self.size, True), None, None)
        in_order, order = places_in_order(keys, math.prod(self.sparse_size))
        order = order.astype("int64", copy=False)
        is_first = xp.ones(len(order), bool)
        is_first[1:] = in_order[1:] != in_order[:-1]
        first = order[is_first]
        group = xp.empty_like(order)
        group[order] = xp.cumsum(is_first) - 1
        indices = xp.ascontiguousarray(self.indices.array[:, first])
        pattern = Pattern(self._tensor(indices), self.size, True)
        return Grouping(pattern, self._tensor(group), self._tensor(first))

    def shown(self, rows_in: dt.dtype | None) -> Pattern:
        """The same places, as compressed rows or (None) as coordinates."""
        if self.rows_in is rows_in:
            return self
        return Pattern(self.indices, self.size, self.coalesced, rows_in)

    def transposed(self, a: int, b: int) -> Pattern:
        """Two sparse dimensions exchanged; the same elements in the same order."""
        xp, size = xp_of(self), list(self.size)
        order = list(range(self.sparse_dim))
        order[a], order[b] = b, a
        size[a], size[b] = size[b], size[a]
        indices = self._tensor(xp.ascontiguousarray(self.indices.array[order]))
        return Pattern(indices, tuple(size), self.coalesced and a == b)

    def to(self, where: Any) -> Pattern:
        """The same places on another device."""
        return Pattern(self.indices.to(where), self.size, self.coalesced, self.rows_in)


def _keys(indices: Any, size: tuple[int, ...], xp: Any) -> Any:
    if math.prod(size) >= 2**63:
        raise RuntimeError(
            f"a sparse tensor of size {list(size)} has more places than an int64 can number"
        )
    keys = xp.zeros(indices.shape[1], "int64")
    for row, extent in zip(indices, size, strict=True):
        keys = keys * extent + row
    return keys
