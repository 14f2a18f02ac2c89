"""Calls of `scipy.signal`."""

from __future__ import annotations

from tests.ops.samples import Row

ROWS: list[Row] = []
