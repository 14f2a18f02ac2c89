"""The interpreter of ops under `vmap`, and the rules that do not stand beside their ops yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.func import (  # noqa: F401  their rules register themselves
    layer_rules,
)
from lucid_gpu.func.entries import Entry, RandomEntry
from lucid_gpu.tape.door import VMAP, Interpreter, Watch
from lucid_gpu.tape.rules import UNBATCHED


def _interpreter() -> Interpreter:
    entries: dict[Any, Entry] = {}

    def batched(
        op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
    ) -> Any:
        entry = entries.get(op)
        if entry is None:
            entry = entries[op] = (RandomEntry if op in UNBATCHED else Entry)(op)
        return entry.run(args, kwargs, go_on)

    return batched


watching = Watch(VMAP, _interpreter)
