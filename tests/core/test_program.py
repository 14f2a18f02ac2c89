"""What follows from programs: kept in named tables, which are emptied together."""

from __future__ import annotations

import lucid_gpu
from lucid_gpu.core.program import Program, derived, forget, tables


def _step(w: lucid_gpu.Tensor) -> list[float]:
    w.grad = None
    y = (w.tanh() * 2) @ w
    (y.mean(0).exp() + w.var(1)).sum().backward()
    gradient: list[float] = w.grad.reshape(-1).tolist()
    return gradient


def test_all_tables_are_emptied_and_filled_again() -> None:
    forget()
    w = lucid_gpu.rand(3, 3, requires_grad=True)
    first = _step(w)
    own: dict[Program, int] = derived("a table of this test")
    try:
        own[w._expr.program] = 1
        filled = {what for what, table in tables.items() if table}
        assert {"programs, each once", "ops on a program", "gradients"} <= filled
        forget()
        assert not any(tables.values())
        assert _step(w) == first
        assert filled - {what for what, table in tables.items() if table} == {
            "a table of this test"
        }
    finally:
        del tables["a table of this test"]
