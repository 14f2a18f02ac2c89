"""`swap_tensors`: two tensors exchange what they are, and stay the objects that they were."""

from __future__ import annotations

import copyreg
import sys
from typing import Any

from lucid_gpu.core.node import AccumulateGrad
from lucid_gpu.ops.in_place import read_anew
from lucid_gpu.tape.overrides import fields
from lucid_gpu.tensor import Tensor

__all__ = ["swap_tensors"]

POISONED = (
    "Trying to execute AccumulateGrad node that was poisoned by swap_tensors "
    "this can happen when you try to run backward on a tensor that was swapped. "
    "For a module m with `torch.__future__.set_swap_module_params_on_conversion(True)` "
    "you should not change the device or dtype of the module (e.g. `m.cpu()` or `m.half()`) "
    "between running forward and backward. To resolve this, please only change the "
    "device/dtype before running forward (or after both forward and backward)."
)
IDLE = 3  # references to a leaf's node that no graph holds: its cell's, a variable's, the count's
_NOTHING = object()


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange values, classes and attributes of two tensors.

    Raises
    ------
    RuntimeError
        For tensors that have views, that a function is transformed with, or whose classes have
        different slots. Backward raises one where a graph of before reaches one of the two.
    """
    slots = [{*copyreg._slotnames(type(t))} for t in (t1, t2)]  # type: ignore[attr-defined]
    if slots[0] != slots[1]:
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    if t1 is t2:
        return
    for name, t in (("t1", t1), ("t2", t2)):
        _prepare(name, t)
    nodes = [t._edge()[0] for t in (t1, t2)]
    for node in nodes:
        if type(node) is AccumulateGrad and sys.getrefcount(node) > IDLE + 1:  # the list's
            node.register_prehook(_poison)
    memories = [t._memory() for t in (t1, t2)]
    # Whoever saved one of the two finds that it was written.
    version = max(memory.version for memory in memories) + 1
    shared = memories[0].tensors is memories[1].tensors
    for memory, old, new in zip(memories, (t1, t2), (t2, t1), strict=True):
        memory.version = version
        if not shared:
            memory.forget(old)
            memory.add(new)
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    first, second = fields(t1), fields(t2)
    for own, held in ((first, dict(second)), (second, dict(first))):
        own.clear()
        own.update(held)
    for slot in slots[0]:
        values = [getattr(t, slot, _NOTHING) for t in (t1, t2)]
        for t, value in zip((t2, t1), values, strict=True):
            if value is not _NOTHING:
                setattr(t, slot, value)
            elif hasattr(t, slot):
                delattr(t, slot)
    for t in (t1, t2):
        read_anew(t, t._storage)
    for node, leaf in zip(nodes, (t2, t1), strict=True):
        if type(node) is AccumulateGrad:
            node.refer_to(leaf)


def _prepare(name: str, t: Tensor) -> None:
    if t._wrapper is not None or any(other._base is t for other in t._memory().others(t)):
        raise RuntimeError(
            f"Expected use_count of {name} to be 1 or 2 with an AccumulateGrad node but got more, "
            "make sure you are not holding references to the tensor in other places: it has views, "
            "or a function is being transformed."
        )
    t._cell()  # what is pending is known by its tensor


def _poison(grad_outputs: Any) -> Any:
    raise RuntimeError(POISONED)
