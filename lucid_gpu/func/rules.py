"""Every op that vmap sees, with its batching rule where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.func import (  # noqa: F401  their rules register themselves
    index_rules,
    layer_rules,
    matrix_rules,
    reduction_rules,
    shape_rules,
)
from lucid_gpu.func.entries import Entry
from lucid_gpu.func.random_rules import RANDOM, RandomEntry
from lucid_gpu.tape.door import VMAP, Interpreter, Watch


def _interpreter() -> Interpreter:
    entries: dict[Any, Entry] = {op: RandomEntry(op, rule) for op, rule in RANDOM.items()}

    def batched(
        op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
    ) -> Any:
        entry = entries.get(op)
        if entry is None:
            entry = entries[op] = Entry(op)
        return entry.run(args, kwargs, go_on)

    return batched


watching = Watch(VMAP, _interpreter)
