"""The incomplete gamma functions: what a gamma distribution has below and above a number.

SciPy computes their values, on the host; their derivative by the second operand is the density.
By the first one there is none, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.ops.arguments import require_one_device, require_tensor, takes_out
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.memory_formats import joint_order, lying
from lucid_gpu.ops.record import record
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.stacking import broadcast_tensors
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

__all__ = ["igamma", "igammac"]


_RULES = "Element by element; the two broadcast. NotImplementedError for types that are no floats."


def _integral(name: str, scipys: str, sign: int, text: str) -> Callable[..., Tensor]:
    def vjp(node: Any, g: Tensor) -> tuple[Tensor | None, Tensor]:
        if node.needs_input_grad[0]:
            raise NotImplementedError(
                f"the derivative for '{name}: input' is not implemented: give it input.detach()"
            )
        a, x = node.saved_values
        return None, g * ((a - 1).xlogy(x) - x - a.lgamma()).exp() * sign

    @op
    @takes_out
    @lying("input", "other", rule=joint_order)
    def function(input: Tensor, other: Tensor) -> Tensor:
        require_tensor(name, "input", 1, input)
        require_tensor(name, "other", 2, other)
        require_one_device(name, input, other)
        d = dt.promote_types(input.dtype, other.dtype)
        if d.category != 2:
            raise dt.unimplemented(name, d)
        from scipy import special

        a, x = broadcast_tensors(input.to(d), other.to(d))
        if x.is_meta:
            values = x.new_empty(x.shape)
        else:
            host = [t.detach().cpu().to(d.compute).numpy() for t in (a, x)]
            values = tensor(getattr(special, scipys)(*host), dtype=d, device=x.device)
        title = f"{name.capitalize()}Backward0"
        result: Tensor = record(title, values.array, (a, x), vjp, (a, x), d)
        return result

    return named(function, name, text)


igamma = _integral(
    "igamma", "gammainc", 1,
    "``1 / gamma(input)`` times the integral of ``t^(input - 1) exp(-t)`` from 0 to ``other``.\n\n"
    + _RULES,
)  # fmt: skip
_TEXT = "One minus `igamma`, element by element, without cancellation."
igammac = _integral("igammac", "gammaincc", -1, _TEXT)

METHODS = FUNCTIONS = (igamma, igammac)
