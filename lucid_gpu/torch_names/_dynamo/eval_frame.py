"""`torch._dynamo.eval_frame`: where packages look for the class of compiled modules."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import Module

__all__ = ["OptimizedModule"]


class OptimizedModule(Module):
    """What `torch.compile` gives in PyTorch, for `isinstance`; `compile` here gives the module."""

    def __init__(self, mod: Any, dynamo_ctx: Any = None) -> None:
        raise RuntimeError(
            "lucid_gpu._dynamo.OptimizedModule: nothing is compiled; use the module itself"
        )
