"""Complex numbers apart and together: real and imaginary parts are views of the number's memory."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core.owner import CONJUGATED, NEGATED
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.arguments import takes_out
from lucid_gpu.ops.elementwise import cast, where
from lucid_gpu.ops.memory_formats import joint_order, lying
from lucid_gpu.ops.mirrors import bits_of
from lucid_gpu.ops.record import keeping, keeps, record
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import base_array, view_of
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching, on_value
from lucid_gpu.tensor import Tensor, apply

_PARTS: dict[dtype, dtype] = {dt.complex64: dt.float32, dt.complex128: dt.float64}
_WHOLES = {part: whole for whole, part in _PARTS.items()}


def real(input: Tensor) -> Tensor:
    """The elements' real parts, a view of complex numbers; a real tensor itself."""
    return _part(input, "real", real) if input.dtype.is_complex else input


def imag(input: Tensor) -> Tensor:
    """The elements' imaginary parts, a view.

    Raises
    ------
    RuntimeError
        For real tensors.
    """
    if not input.dtype.is_complex:
        raise RuntimeError(
            "imag is not implemented for tensors with non-complex dtypes, got "
            f"{input.dtype.name}; its imaginary part is lucid_gpu.zeros_like(x)"
        )
    return _part(input, "imag", imag)


@op
def _part(input: Tensor, name: str, function: Any) -> Tensor:
    vjp = _real_vjp if name == "real" else _imag_vjp
    array = getattr(base_array(input), name)
    bits: int | None = bits_of(input)
    if bits:
        turns = name == "imag" and bits & CONJUGATED
        bits = (bits ^ NEGATED if turns else bits) & NEGATED
    return view_of(
        input, "SelectBackward0", array, vjp, (function, ()), dtype=_PARTS[input.dtype],
        bits=bits if bits_of(input) else None,
    )  # fmt: skip


def _real_vjp(node: Any, g: Tensor) -> Any:
    return (cast(g, _WHOLES[g.dtype]),)


def _imag_vjp(node: Any, g: Tensor) -> Any:
    return (cast(g, _WHOLES[g.dtype]) * 1j,)


batching(_part)(on_value)


@op
@takes_out
@keeping("real", "imag", apart=True)
@lying("real", "imag", rule=joint_order)
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers of two real tensors of one type, which broadcast.

    Raises
    ------
    RuntimeError
        For other types than float32 and float64, and for two different ones.
    """
    if real.dtype not in _WHOLES or imag.dtype not in _WHOLES:
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{real.dtype.type_name} and {imag.dtype.type_name}; float32 and float64 are supported"
        )
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {real.dtype.type_name} but got scalar type "
            f"{imag.dtype.type_name} for second argument"
        )
    a, b = _same_shape(real, imag)
    array = a.array.astype(_WHOLES[real.dtype].numpy)
    array.imag = b.array
    joined: Tensor = record("ComplexBackward0", array, (a, b), _complex_vjp)
    return joined


def _same_shape(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.shape == b.shape:
        return a, b
    from lucid_gpu.fusion.typing_rules import broadcast_shapes

    shape = broadcast_shapes([tuple(a.shape), tuple(b.shape)], "complex")
    return a.expand(shape), b.expand(shape)


def _complex_vjp(node: Any, g: Tensor) -> Any:
    return real(g), imag(g)


@batching(complex)
def _complex_batched(level: Batch, f: Any, real: Tensor, imag: Tensor) -> Any:
    rank = max(real.ndim, imag.ndim)
    return level.wrap(f(level.aligned(real, rank), level.aligned(imag, rank)))


@op(whole=True)
@takes_out
def angle(input: Tensor) -> Tensor:
    """The elements' angles in the complex plane; of real ones 0, pi if negative, NaN if NaN."""
    if input.dtype.is_complex:
        return apply(TABLE["atan2"], imag(input), real(input))
    if input.dtype.category < 2:
        input = cast(input, dt.get_default_dtype())
    flat = input.sign() * 0  # part of the graph, and of no slope
    turned: Tensor = where(input < 0, flat + math.pi, flat)
    return keeps(where(input.isnan(), input.detach(), turned), input, title="AngleBackward0")


def _assign(name: str) -> Any:
    def write(self: Tensor, value: Any) -> None:
        getattr(self, name).copy_(value)

    return write


FUNCTIONS = (real, imag, complex, angle)
attach(Tensor, angle, real=property(real, _assign("real")), imag=property(imag, _assign("imag")))
