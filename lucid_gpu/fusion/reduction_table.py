"""THE table of reductions: NumPy, CUDA C and element types of every one.

A reduction takes values one by one into a state, adds states, and reads its results off the last.
In CUDA C the state is a struct of `kernels/fold.cuh` or `block.cuh` with ``take`` and ``+``; in
NumPy a ufunc's ``reduce`` where there is one (else the op has a NumPy form of its own).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import dtype


class Row(NamedTuple):
    """A reduction.

    Attributes
    ----------
    name : str
    state : str
        The struct in CUDA C; ``T`` is the type of the values taken.
    start : str
        How a state begins: it changes nothing that it is added to.
    results : tuple of str
        Expressions in CUDA C of a state ``s`` and of ``divisor``.
    parts : int
        How many values a state holds.
    ufunc : str or None
        NumPy's ufunc whose ``reduce`` takes and adds.
    of_nothing : number or None
        The result where there are no values.
    divides : bool
        The results are divided by a number given with the reduction.
    places : bool
        ``take`` is given each value's place too, and the results are places, int64.
    """

    name: str
    state: str
    start: str
    results: tuple[str, ...]
    parts: int
    ufunc: str | None
    of_nothing: Any = None
    divides: bool = False
    places: bool = False

    def types(self, d: dtype) -> tuple[dtype, ...]:
        """The results' types, of values of a type."""
        return (dt.int64 if self.places else d,) * len(self.results)

    def state_bytes(self, d: dtype) -> int:
        """The size of a state of values of a type: whole words."""
        return 16 if self.places else max(4, self.parts * d.itemsize)


# fmt: off
TABLE = {row.name: row for row in (
    Row("sum", "lucid_total<T>", "{(T)0}", ("s.total",), 1, "add", 0),
    Row("mean", "lucid_total<T>", "{(T)0}", ("s.total / divisor",), 1, "add", math.nan,
        divides=True),
    Row("prod", "lucid_product<T>", "{(T)1}", ("s.product",), 1, "multiply", 1),
    Row("amax", "lucid_largest<T>", "{lucid_below_all<T>()}", ("s.value",), 1, "maximum", 0),
    Row("amin", "lucid_smallest<T>", "{lucid_above_all<T>()}", ("s.value",), 1, "minimum", 0),
    Row("any", "lucid_any", "{false}", ("s.found",), 1, "logical_or", False),
    Row("all", "lucid_all", "{true}", ("s.holds",), 1, "logical_and", True),
    Row("argmax", "lucid_place_of<T, true>", "{-1, (T)0}", ("s.place",), 2, None, places=True),
    Row("argmin", "lucid_place_of<T, false>", "{-1, (T)0}", ("s.place",), 2, None, places=True),
    Row("var_mean", "lucid_welford<T>", "{(T)0, (T)0, (T)0}",
        ("s.spread / divisor", "s.mean"), 3, None, divides=True),
    Row("logsumexp", "lucid_exponentials<T>", "{{lucid_lowest<T>(), (T)0}, (T)0}",
        ("s.logarithm()",), 3, None),
)}
# fmt: on
