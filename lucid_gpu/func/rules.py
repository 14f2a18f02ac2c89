"""Every op that vmap must notice, with its batching rule where there is one."""

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
from lucid_gpu.func.rule import RULES
from lucid_gpu.ops import (
    cross_entropy,
    ctc,
    cumsum,
    cumulative,
    dropout,
    embedding,
    index_add,
    indexing,
    matmul,
    order,
    pooling,
    reductions,
    scatter_reduce,
    shape,
    softmax,
    splitting,
    statistics,
    strides,
    windows,
)
from lucid_gpu.tape.door import VMAP, Interpreter, Watch, op_of

_LOOPED = (
    scatter_reduce._joined,
    strides.as_strided,
    strides.restrided,
    windows._unfolded,
    windows._folded,
    pooling._put,
    pooling._take,
    pooling._mean,
    pooling._spread,
    embedding._take_rows,
    embedding._sum_rows,
    cross_entropy._pick,
    indexing._place_vjp,
    ctc.ctc_loss,
    dropout.dropout,
    softmax.softmax,
    softmax.log_softmax,
)


LATE = (cumulative, order, splitting, statistics)


def all_entries() -> list[Entry]:
    """An entry for every op that is not elementwise."""
    from lucid_gpu.func.random_rules import RANDOM, RandomEntry

    public = [
        found
        for module in (shape, reductions, cumsum, indexing, index_add, matmul, *LATE)
        for f in (*module.METHODS, *getattr(module, "FUNCTIONS", ()))
        if (found := op_of(f)) is not None
    ]
    functions = dict.fromkeys([*RULES, *public, *_LOOPED])
    plain = [f for f in functions if f not in RANDOM]
    return [
        *[Entry(f, RULES.get(f)) for f in plain],
        *[RandomEntry(f, one) for f, one in RANDOM.items()],
    ]


def _interpreter() -> Interpreter:
    entries = {entry.function: entry for entry in all_entries()}

    def batched(
        op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
    ) -> Any:
        entry = entries.get(op)
        return go_on(*args, **kwargs) if entry is None else entry.run(args, kwargs, go_on)

    return batched


watching = Watch(VMAP, _interpreter)
