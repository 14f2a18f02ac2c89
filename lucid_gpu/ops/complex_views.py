"""Complex numbers as pairs of real ones and back, conjugates, and what shows memory negated."""

from __future__ import annotations

from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core.owner import CONJUGATED, NEGATED
from lucid_gpu.devices import xp_of
from lucid_gpu.ops.arguments import require_tensor, takes_out
from lucid_gpu.ops.complex_numbers import complex, imag, real
from lucid_gpu.ops.mirrors import bits_of
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import base_array, stack, view_of
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor


@op
def view_as_real(input: Tensor) -> Tensor:
    """A view with a last dimension of two, real and imaginary parts: ``(...)`` to ``(..., 2)``.

    RuntimeError for a tensor that is not complex.
    """
    if not input.dtype.is_complex:
        raise RuntimeError(
            f"view_as_real is only supported for complex tensors, got {input.dtype.name}"
        )
    if bits_of(input) & CONJUGATED:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
            "tensor so you can view it as real, use self.resolve_conj(); however, be warned that "
            "the resulting tensor will NOT alias the original."
        )
    array = base_array(input).real
    size = input.dtype.itemsize // 2
    array = xp_of(input).lib.stride_tricks.as_strided(
        array, (*array.shape, 2), (*array.strides, size)
    )
    step = (view_as_real, ())
    d = input.dtype.to_real()
    return view_of(input, "ViewAsRealBackward0", array, _parts_vjp, step, dtype=d)


def _parts_vjp(node: Any, g: Tensor) -> Any:
    return (complex(*g.unbind(-1)),)


@op
def view_as_complex(input: Tensor) -> Tensor:
    """A view of pairs in the last dimension as complex numbers, ``x.shape[:-1]``.

    RuntimeError if the last dimension is not two long and contiguous, for other types than
    float32 and float64, and for strides that are not multiples of two.
    """
    if input.dtype not in (dt.float32, dt.float64):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a "
            f"tensor of scalar type: {input.dtype.type_name}"
        )
    if not input.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError(
            f"Tensor must have a last dimension of size 2, got shape {list(input.shape)}"
        )
    array, size = base_array(input), input.dtype.itemsize
    if array.size and array.strides[-1] != size:
        raise RuntimeError("Tensor must have a last dimension with stride 1; call .contiguous()")
    if array.size and any(s % (2 * size) for s in array.strides[:-1]):
        raise RuntimeError(
            "Tensor must have a stride divisible by 2 for all but last dimension; call "
            ".contiguous()"
        )
    whole = input.dtype.to_complex()
    seen = array.view(whole.numpy)[..., 0]
    step = (laid_as_complex, ())
    return view_of(input, "ViewAsComplexBackward0", seen, _whole_vjp, step, dtype=whole)


def laid_as_complex(input: Tensor) -> Tensor:
    """The view of a tensor of the same shape, such as a tangent; of a copy if it lies otherwise."""
    strides, size = base_array(input).strides, input.dtype.itemsize
    lies = strides[-1] == size and not any(s % (2 * size) for s in strides[:-1])
    return view_as_complex(input if lies else input.contiguous())


def _whole_vjp(node: Any, g: Tensor) -> Any:
    return (stack([real(g), imag(g)], -1),)


@op(autocast={"cpu": "float32"})
@takes_out
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers by absolute value and angle, which broadcast.

    RuntimeError for other types than float32 and float64, and for two different ones.
    """
    if abs.dtype not in (dt.float32, dt.float64) or angle.dtype not in (dt.float32, dt.float64):
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{abs.dtype.type_name} and {angle.dtype.type_name}"
        )
    if abs.dtype is not angle.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {abs.dtype.type_name} but got scalar type "
            f"{angle.dtype.type_name} for second argument"
        )
    if open_levels and innermost((abs, angle)) is not None:
        return complex(abs * angle.cos(), abs * angle.sin())
    with no_grad():
        value = complex(abs * angle.cos(), abs * angle.sin())
    result: Tensor = record(
        "PolarBackward0", value, (abs, angle), _polar_vjp, dtype=value.dtype, keeps_output=True,
        shapes=(tuple(abs.shape), tuple(angle.shape)),
    )  # fmt: skip
    return result


def _polar_vjp(node: Any, g: Tensor) -> Any:
    """The parts of the gradient along the result and across it."""
    (y,) = node.saved_values
    turned = g.conj_physical()
    along, across = real(turned * y.sgn()), real(turned * y * 1j)
    return along._sum_to_shape(node.shapes[0]), across._sum_to_shape(node.shapes[1])


@op
def conj(input: Tensor) -> Tensor:
    """The elements' complex conjugates, of the same shape, a view; a real tensor itself."""
    if not input.dtype.is_complex:
        return input
    array, bits = base_array(input), bits_of(input) ^ CONJUGATED
    return view_of(input, "ConjBackward0", array, _conj_vjp, (conj, ()), bits=bits)


def _conj_vjp(node: Any, g: Tensor) -> Any:
    return (g.conj_physical(),)


@op
def _neg_view(input: Tensor) -> Tensor:
    """The elements with the other sign, of the same shape, as a view."""
    array, bits = base_array(input), bits_of(input) ^ NEGATED
    return view_of(input, "NegViewBackward0", array, _neg_vjp, (_neg_view, ()), bits=bits)


def _neg_vjp(node: Any, g: Tensor) -> Any:
    return (-g,)


batching(conj, _neg_view)(on_value)


def _conj(input: Tensor) -> Tensor:
    """`conj` under PyTorch's inner name: a view of the same shape."""
    return conj(input)


def resolve_conj(input: Tensor) -> Tensor:
    """A copy, of the same shape, of a tensor that `conj` made; any other itself."""
    require_tensor("resolve_conj", "input", 1, input)
    return input.clone() if is_conj(input) else input


def resolve_neg(input: Tensor) -> Tensor:
    """A copy, of the same shape, of a view that shows its memory negated; any other itself."""
    require_tensor("resolve_neg", "input", 1, input)
    return input.clone() if is_neg(input) else input


def is_conj(input: Tensor) -> bool:
    """Whether this shows its memory conjugated: what `conj` made, and views of that."""
    require_tensor("is_conj", "input", 1, input)
    return bool(bits_of(input) & CONJUGATED)


def is_neg(input: Tensor) -> bool:
    """Whether this shows its memory negated, as the imaginary part of what `conj` made."""
    require_tensor("is_neg", "input", 1, input)
    return bool(bits_of(input) & NEGATED)


METHODS = (conj, _conj, _neg_view, resolve_conj, resolve_neg, is_conj, is_neg)
FUNCTIONS = (*METHODS, view_as_real, view_as_complex, polar)
