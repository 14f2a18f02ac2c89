"""Bessel functions and Airy's function, for `lucid_gpu.special`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import xp_of
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.kernels import bessel
from lucid_gpu.ops.arguments import public, require_tensor
from lucid_gpu.ops.memory_formats import joint_order, lying
from lucid_gpu.ops.registry import named
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor, from_array

NO_GRADIENT = (
    "\n\nComputed in float64. The result has no gradient, as in PyTorch. NotImplementedError for "
    "complex numbers and 16-bit floats."
)


def float_type(name: str, dtype: Any) -> Any:
    """The type of such a function's result; integers become floats."""
    if dtype.category < 2:
        return dt.get_default_dtype()
    if dtype.is_complex or dtype.itemsize < 4:
        raise dt.unimplemented(name, dtype)
    return dtype


def computed(compute: Callable[..., Any], d: Any, *operands: Tensor) -> Tensor:
    """A function of NumPy's or CuPy's module and of float64 arrays of one shape, in a type."""
    first = operands[0]
    if first.is_meta:
        return first.new_empty(first.shape, dtype=d)
    xp = xp_of(first)
    values = run_quietly(compute, xp, *[t.detach().to(dt.float64).array for t in operands])
    return from_array(xp.asarray(values, d.numpy), d, first.device)


def _function(name: str, compute: Callable[..., Any], text: str) -> Callable[..., Tensor]:
    @op
    @lying("input", rule=joint_order)
    def function(input: Tensor) -> Tensor:
        require_tensor(f"special_{name}", "input", 1, input)
        return computed(compute, float_type(name, input.dtype), input)

    batching(function)(on_value)
    return public(named(function, name, f"{text}, of each element.{NO_GRADIENT}"))


def _of_order(order: int) -> list[Callable[..., Tensor]]:
    first, second = f"bessel_j{order}", f"bessel_y{order}"
    modified = f"modified_bessel_k{order}"
    return [
        _function(
            first,
            lambda xp, x: bessel.bessel_j(xp, order, x),
            f"The Bessel function of the first kind of order {order}",
        ),
        _function(
            second,
            lambda xp, x: bessel.bessel_y(xp, order, x),
            f"The Bessel function of the second kind of order {order}",
        ),
        _function(
            modified,
            lambda xp, x: bessel.bessel_k(xp, order, x, False),
            f"The modified Bessel function of the second kind of order {order}",
        ),
        _function(
            f"scaled_{modified}",
            lambda xp, x: bessel.bessel_k(xp, order, x, True),
            f"`{modified}` times ``exp(x)``",
        ),
    ]


bessel_j0, bessel_y0, modified_bessel_k0, scaled_modified_bessel_k0 = _of_order(0)
bessel_j1, bessel_y1, modified_bessel_k1, scaled_modified_bessel_k1 = _of_order(1)
airy_ai = _function("airy_ai", bessel.airy_ai, "Airy's function Ai")
spherical_bessel_j0 = _function(
    "spherical_bessel_j0",
    bessel.spherical_bessel_j0,
    "The spherical Bessel function of the first kind of order 0, ``sin(x) / x``",
)
