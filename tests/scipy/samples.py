"""Sample calls of every row of `lucid_gpu.scipy`: the data of test_rows.py, one file a module.

``t(3, 4)`` is a tensor of random numbers that is differentiated, ``t(3, of=(0.1, 5.0))`` one from
that interval; ``fixed([0, 2])`` is one of these values.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from tests.ops.samples import Row

FILES = sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / "of")]))
ROWS: list[Row] = [
    row for name in FILES for row in importlib.import_module(f"tests.scipy.of.{name}").ROWS
]
