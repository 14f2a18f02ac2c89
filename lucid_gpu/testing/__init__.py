"""For tests: `check_function` for custom functions; PyTorch's `assert_close` and `make_tensor`."""

from __future__ import annotations

from lucid_gpu.testing.checking import check_function
from lucid_gpu.testing.comparison import assert_close
from lucid_gpu.testing.creation import make_tensor
from lucid_gpu.testing.report import CheckFunctionError, Report

__all__ = ["CheckFunctionError", "Report", "assert_close", "check_function", "make_tensor"]
