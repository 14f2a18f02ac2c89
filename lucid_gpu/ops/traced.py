"""A function of tensors as one kernel on arrays, for ops that run it many times.

Building a dozen ops costs more than the arithmetic of a recurrent layer's step. So the function is
called once for each layout, on tensors; what is pending then is the plan that all later calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.core.value import Cell
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.realize import execute, plan_for
from lucid_gpu.tape.modes import OFF, set_mode
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["Traced"]

LAYOUTS = 256  # that are remembered


class Traced:
    """An elementwise function of tensors of one shape, called with arrays.

    Parameters
    ----------
    function : callable
        Gets a list of tensors, gives a list of tensors of one shape. Nothing of it is recorded.
    """

    def __init__(self, function: Callable[[list[Tensor]], Sequence[Tensor]]) -> None:
        self.function = function
        self._known: dict[Any, tuple[Any, list[Any], list[Any]]] = {}

    def __call__(self, arrays: Sequence[Any], d: dtype, where: device) -> Sequence[Any]:
        """The results for arrays of type ``d`` on a device, computed by one kernel."""
        key = (where, d, *[(a.shape, a.strides) for a in arrays])
        entry = self._known.get(key)
        if entry is None:
            views = [a.view() for a in arrays]  # the same array may be given twice
            results = self._results(views, d, where)
            known = {id(v) for v in views}
            loads = [r for r in results if r._expr.program.is_load]
            if any(id(r.array) not in known for r in loads):  # every op is realized at once
                return [r.array for r in results]
            if len(self._known) >= LAYOUTS:
                self._known.clear()
            entry = self._known[key] = _planned(results, views)
        plan, sources, passed_through = entry
        computed = execute(plan, [Cell(arrays[s]) if type(s) is int else s for s in sources])
        if not passed_through:
            return computed
        rest = iter(computed)
        return [next(rest) if position is None else arrays[position] for position in passed_through]

    def _results(self, arrays: Sequence[Any], d: dtype, where: device) -> Sequence[Tensor]:
        mode = set_mode(OFF)
        try:
            return self.function([from_array(a, d, where) for a in arrays])
        finally:
            set_mode(mode)


def _planned(results: Sequence[Tensor], arrays: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
    """A plan, the array each of its leaves reads, and the results that are arrays as given."""
    position_of = {id(a): i for i, a in enumerate(arrays)}
    passed_through = [
        position_of[id(r.array)] if r._expr.program.is_load else None for r in results
    ]
    pending = [r._expr for r in results if not r._expr.program.is_load]
    plan, leaves = plan_for(pending)
    sources = [position_of.get(id(leaf.array), leaf) for leaf in leaves]
    return plan, sources, passed_through if len(pending) < len(results) else []
