"""`torch._six`: names of Python 2 and 3 that old packages still import."""

from __future__ import annotations

import collections.abc as container_abcs
from math import inf, nan

__all__ = ["container_abcs", "inf", "int_classes", "nan", "string_classes"]

string_classes = (str, bytes)
int_classes = int
PY3, PY37 = True, True
