"""`torch._dynamo.backends.common`: what makes compilers of graphs; refuses when it is called."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.torch_names._functorch.aot_autograd import refuse

__all__ = ["aot_autograd"]


def aot_autograd(**settings: Any) -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("_dynamo.backends.common.aot_autograd")
