"""One update of many tensors at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.fusion.realise import realise
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["Rule", "update_in_place"]

Rule = Callable[..., tuple[Tensor, ...]]


def update_in_place(rule: Rule, columns: list[list[Tensor]], settings: dict[str, Any]) -> None:
    """Replace tensors by what a rule makes of them.

    Parameters
    ----------
    rule : callable
        ``rule(parameter, gradient, *states, **settings)`` returns new values for the parameter and
        the states, written in tensor arithmetic.
    columns : list of list of Tensor
        Parameters, gradients, and a list for each state; all are changed but the gradients.
    settings : dict
        Numbers, the same for all.
    """
    for parameter, gradient, *states in zip(*columns):
        values = rule(parameter.detach(), gradient, *states, **settings)
        arrays = realise([value._expr for value in values])
        for old, value, array in zip((parameter, *states), values, arrays):
            old.copy_(from_array(array, value.dtype, old.device))
