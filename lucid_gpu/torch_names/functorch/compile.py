"""`functorch.compile`, for packages that offer a compiler: what would use it refuses."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.torch_names._functorch.aot_autograd import (
    aot_function,
    aot_module,
    aot_module_simplified,
    compiled_function,
    compiled_module,
    make_boxed_compiler,
    make_boxed_func,
    refuse,
)
from lucid_gpu.torch_names._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)

__all__ = [
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "compiled_function",
    "compiled_module",
    "default_partition",
    "make_boxed_compiler",
    "make_boxed_func",
    "memory_efficient_fusion",
    "min_cut_rematerialization_partition",
]


def memory_efficient_fusion(fn: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("functorch.compile.memory_efficient_fusion")
