"""Tuples with names that ops give: each op has a class, which prints as that of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from lucid_gpu.dtypes import printed
from lucid_gpu.tensor import Tensor

Kind = TypeVar("Kind", bound=type)


def _printed(result: Any) -> str:
    parts = ",\n".join([f"{name}={part!r}" for name, part in zip(result._fields, result)])
    return f"{printed()}.return_types.{type(result).__name__}(\n{parts})"


def _new(make: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A constructor that takes the parts, or as PyTorch's one sequence of them."""

    def __new__(cls: Any, *parts: Any, **named: Any) -> Any:
        if len(parts) == count > 1 and not named:
            return tuple.__new__(cls, parts)
        if len(parts) == 1 and not named:
            parts = tuple(parts[0])
            if len(parts) != count:
                raise TypeError(
                    f"{cls.__name__}() takes a {count}-sequence ({len(parts)}-sequence given)"
                )
        return make(cls, *parts, **named)

    return __new__


def result_of(op: str) -> Callable[[Kind], Kind]:
    """Declare a named tuple to be what an op gives, as `return_types` has it under this name."""

    def named(kind: Kind) -> Kind:
        made: Any = kind
        made.__name__ = made.__qualname__ = op
        made.__module__ = "lucid_gpu.return_types"
        made.__repr__ = _printed
        made.__new__ = _new(made.__new__, len(made._fields))
        return kind

    return named


def results_of(kind: Any, *ops: str) -> dict[str, Any]:
    """Classes of several ops that give tuples of the same names."""
    space = {"__slots__": (), "__doc__": kind.__doc__}
    return {op: result_of(op)(type(op, (kind,), dict(space))) for op in ops}


class ValuesAndIndices(NamedTuple):
    """What ops return that also say where they found their values."""

    values: Tensor
    indices: Tensor


VALUES = results_of(
    ValuesAndIndices,
    *["cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk"],
)


def values_and_indices(node: str, values: Tensor, indices: Tensor) -> Any:
    """The result of an op whose node has this name."""
    return VALUES[node.partition("Backward")[0].lower()](values, indices)
