"""`torch._decomp`: PyTorch's ops by simpler ones, for compilers; ops are not taken apart here."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.torch_names._functorch.aot_autograd import refuse

__all__ = ["core_aten_decompositions", "get_decompositions"]


def core_aten_decompositions() -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("_decomp.core_aten_decompositions")


def get_decompositions(aten_ops: Any, type: str = "post_autograd") -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("_decomp.get_decompositions")
