"""Calls of `scipy.special`."""

from __future__ import annotations

from tests.ops.samples import fixed, row, t

ROWS = [
    row("special.jv", fixed([0.0, 1.5]), t(3, 2, of=(0.2, 5.0))),
]
