"""What ``Tensor.__array_function__`` answers: NumPy's functions found among ours by their name.

A family's file holds functions under NumPy's names and signatures, listed in its ``__all__``.
`FAMILIES` says to which of NumPy's modules they belong; `VALUES` names the functions whose result
has no derivative, which the array library computes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu.devices import backend_of_array, xp_of
from lucid_gpu.func.trees import tree_map
from lucid_gpu.numpy import (
    applied,
    arranging,
    joining,
    matrices,
    polynomials,
    products,
    reductions,
    running,
    selection,
    sequences,
    shapes,
    statistics,
    transforms,
    windows,
    writing,
)
from lucid_gpu.numpy.operands import as_tensor, first_tensor
from lucid_gpu.numpy.refusals import unsupported, writes_at
from lucid_gpu.tensor import Tensor, from_array

_ELSEWHERE = {  # families of other modules than NumPy's own
    transforms: np.fft,
    matrices: np.linalg,
    windows: np.lib.stride_tricks,
}
FAMILIES: dict[Any, Any] = dict.fromkeys(
    (applied, arranging, joining, polynomials, products, running, selection, sequences, reductions,
     shapes, statistics, writing), np,
) | _ELSEWHERE  # fmt: skip

# results are whole numbers, truth values or positions
VALUES = (
    "allclose argmax argmin argpartition argsort argwhere array_equal array_equiv bincount "
    "count_nonzero digitize flatnonzero histogram histogram2d histogram_bin_edges histogramdd "
    "in1d intersect1d iscomplex iscomplexobj isclose isin isneginf isposinf isreal isrealobj "
    "lexsort may_share_memory min_scalar_type nanargmax nanargmin nonzero ravel_multi_index "
    "searchsorted setdiff1d setxor1d shares_memory union1d unique unique_all unique_counts "
    "unique_inverse unique_values unravel_index array2string array_repr array_str packbits "
    "unpackbits save savetxt savez savez_compressed"
)
OUT = {"argmax": 2, "argmin": 2, "isneginf": 1, "isposinf": 1, "nanargmax": 2, "nanargmin": 2}
ANSWERS = ("allclose", "array_equal", "array_equiv")  # one truth value, which CuPy leaves an array
OLDER = {"trapz": "trapezoid"}  # names that newer NumPys have no more
# of NumPy's functions that it hands on, those that tensors do not have
REFUSED = "busday_count busday_offset datetime_as_string is_busday"


def __array_function__(
    self: Tensor,
    function: Any,
    types: Sequence[type],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call our function of that name.

    Raises
    ------
    TypeError
        For a function that tensors do not have; the message names it.
    """
    for kind in types:
        if kind is not Tensor and not _understood(kind):
            return NotImplemented
    implementation = _table().get(function)
    if implementation is None:
        raise unsupported(f"{function.__module__}.{function.__name__}")
    return implementation(*args, **kwargs)


def _understood(kind: type) -> bool:
    return issubclass(kind, (Tensor, np.ndarray)) or kind.__module__.split(".")[0] == "cupy"


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    table: dict[Any, Callable[..., Any]] = {}
    for name in VALUES.split():
        if hasattr(np, name):
            table[getattr(np, name)] = functools.partial(_on_values, name)
    for name, position in OUT.items():
        table[getattr(np, name)] = writes_at(position, name, table[getattr(np, name)])
    for family, module in FAMILIES.items():
        for name in family.__all__:
            if hasattr(module, name):  # older NumPy lacks some
                table[getattr(module, name)] = getattr(family, name)
    for name, ours in OLDER.items():
        if hasattr(np, name):
            table[getattr(np, name)] = table[getattr(np, ours)]
    return table


def _on_values(name: str, *args: Any, **kwargs: Any) -> Any:
    """A function without a derivative: on the arrays, its arrays as tensors again."""
    tensor = first_tensor((*args, *kwargs.values()))
    assert tensor is not None  # else NumPy had not asked
    function = getattr(xp_of(tensor), name, None)
    if function is None:
        raise unsupported(f"numpy.{name} on {tensor.device}")
    args, kwargs = tree_map(functools.partial(_array, where=tensor), (args, kwargs))
    if name in ANSWERS:
        return bool(function(*args, **kwargs))
    return tree_map(functools.partial(_result, where=tensor.device), function(*args, **kwargs))


def _array(value: Any, where: Tensor) -> Any:
    if where.is_cuda and isinstance(value, np.ndarray):  # comes along
        value = as_tensor(value, where)
    return value.detach().array if isinstance(value, Tensor) else value


def _result(value: Any, where: Any) -> Any:
    if isinstance(value, np.bool) or backend_of_array(value) is None:
        return value
    return from_array(np.asarray(value) if isinstance(value, np.generic) else value, None, where)


METHODS = (__array_function__,)
