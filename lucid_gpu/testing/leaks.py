"""Who outlives a call, and who holds it."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Sequence
from typing import Any

from lucid_gpu.autograd.backward import grad
from lucid_gpu.tensor import Tensor
from lucid_gpu.testing.subject import Subject

_DEPTH = 6  # how far a holder is looked for


def leaked(subject: Subject, backward: bool) -> str | None:
    """Call the function, forget everything, and say what lives on; None if nothing does."""
    watched = _call(subject, backward)
    gc.collect()
    alive = [(name, found) for name, r in watched if (found := r()) is not None]
    if not alive:
        return None
    names = ", ".join(name for name, _ in alive)
    holder = _holder(alive[0][1], [alive, *alive])
    del alive
    where = f"; {holder} holds it" if holder else ""
    return f"{names} alive after {'backward' if backward else 'forward'} and a collection{where}"


def _call(subject: Subject, backward: bool) -> list[tuple[str, Any]]:
    args = subject.fresh()
    outputs = subject.outputs(args)
    watched = [(f"input {i}", weakref.ref(args[i])) for i in subject.places]
    for i, o in enumerate(outputs):
        watched.append((f"output {i}", weakref.ref(o)))
        if o.grad_fn is not None:
            watched.append((o.grad_fn.name(), weakref.ref(o.grad_fn)))
    if backward and outputs:
        targets = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        grad(outputs, targets, subject.cotangents(outputs), allow_unused=True)
    return watched


def _holder(found: Any, ours: Sequence[Any]) -> str | None:
    """The global name from which an object can be reached, if there is one."""
    modules = {id(vars(m)): name for name, m in list(sys.modules.items()) if hasattr(m, "__dict__")}
    seen = {id(o) for o in ours}
    frontier = [found]
    for _ in range(_DEPTH):
        above: list[Any] = []
        for item in frontier:
            for holder in gc.get_referrers(item):
                if id(holder) in modules:
                    names = [k for k, v in list(holder.items()) if v is item]
                    return f"{modules[id(holder)]}.{names[0]}" if names else modules[id(holder)]
                mine = holder is frontier or holder is above or isinstance(holder, types.FrameType)
                if not mine and id(holder) not in seen:
                    seen.add(id(holder))
                    above.append(holder)
        frontier = above
    return None
