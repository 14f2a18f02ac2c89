"""cupy.lib.stride_tricks of the stand-in."""

from __future__ import annotations

from typing import Any

import numpy


def as_strided(x: Any, shape: Any = None, strides: Any = None) -> Any:
    return x._view(numpy.lib.stride_tricks.as_strided(x._a, shape, strides))
