"""For tests: `check_function` for custom functions; PyTorch's `assert_close` and `make_tensor`."""

from __future__ import annotations

import os as _os

from lucid_gpu.testing.checking import check_function
from lucid_gpu.testing.comparison import assert_allclose, assert_close
from lucid_gpu.testing.creation import make_tensor
from lucid_gpu.testing.report import CheckFunctionError, Report

__path__ = [*__path__, _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "testing")]

__all__ = [
    "CheckFunctionError",
    "Report",
    "assert_allclose",
    "assert_close",
    "check_function",
    "make_tensor",
]
