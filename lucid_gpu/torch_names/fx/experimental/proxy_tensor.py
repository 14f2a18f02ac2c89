"""`torch.fx.experimental.proxy_tensor`: tracing below autograd, which there is none of here."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["get_proxy_mode", "make_fx"]


def get_proxy_mode() -> None:
    """The mode that traces tensors into a graph: there is none."""


def make_fx(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuse with a RuntimeError that names what to write instead."""
    raise RuntimeError(
        "lucid_gpu.fx.experimental.proxy_tensor.make_fx: there are no ops below autograd to trace; "
        "fx.symbolic_trace(f) traces the calls of f itself"
    )
