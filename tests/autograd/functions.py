"""Functions of either module, made from plain functions."""

from __future__ import annotations

from typing import Any


def leaf(m: Any, d: str, *values: float) -> Any:
    return m.tensor(list(values or (1.0, 2.0, 3.0)), device=d, requires_grad=True)


def make(
    m: Any, forward: Any, backward: Any = None, setup_context: Any = None, **others: Any
) -> Any:
    """A Function of static methods."""
    methods = {"forward": forward, "backward": backward, "setup_context": setup_context}
    body = {name: staticmethod(f) for name, f in methods.items() if f is not None}
    return type("Custom", (m.autograd.Function,), {**body, **others})


def gradient(function: Any, x: Any, *rest: Any, **named: Any) -> Any:
    function.apply(x, *rest, **named).sum().backward()
    return x.grad


def exponential(m: Any) -> Any:
    """Elementwise, and saves its output."""

    class Exponential(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            return g * y

    return Exponential
