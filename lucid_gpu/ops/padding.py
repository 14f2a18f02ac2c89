"""Borders around tensors: constant, mirrored, repeated, periodic.

A border that copies the inside is written dimension by dimension: the middle is put in place, then
each border is a slice of what is there already, so that corners come by themselves. The gradient
adds those slices back in the opposite order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import channels_order, empty_in
from lucid_gpu.ops.number_ranges import number_in, refuse_unheld
from lucid_gpu.ops.record import TIED, keeps, leads_back, record
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor

__all__ = ["constant_pad_nd", "pad"]

Sides = tuple[tuple[int, int], ...]  # before and after, for each of the last dimensions


@op
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    """Put borders around the last dimensions, or with negative numbers cut borders off.

    Parameters
    ----------
    input : Tensor
    pad : sequence of int
        ``(before, after)`` of the last dimension, then of the one before it, and so on.
    mode : {"constant", "reflect", "replicate", "circular"}
        The values of the border: one value; the inside mirrored at its outermost elements; the
        outermost elements; the inside again. All but the first take 1 to 3 dimensions, with one or
        two before them.
    value : float, optional
        Of a constant border, 0 by default.

    Returns
    -------
    Tensor, of input's dtype

    Raises
    ------
    RuntimeError
        If the numbers do not fit the tensor.
    NotImplementedError
        For another mode, or a rank that the mode does not take.
    TypeError
        For sides that are not whole numbers.
    """
    require_tensor("pad", "input", 1, input)
    sides = _sides(pad, input)
    if mode == "constant":
        return _constant(input, sides, 0 if value is None else value)
    if mode not in _BORDERS:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if input.ndim not in (len(sides) + 1, len(sides) + 2) or not 1 <= len(sides) <= 3:
        raise NotImplementedError(
            f"Padding size {2 * len(sides)} is not supported for {input.ndim}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    _check(input, sides, mode)
    outwards = tuple([(max(a, 0), max(b, 0)) for a, b in sides])
    inwards = tuple([(min(a, 0), min(b, 0)) for a, b in sides])
    if mode == "circular":  # what is cut off does not come back on the other side
        inside = _cut(input, inwards)
        short = any(max(s) > n for n, s in zip(inside.shape[-len(sides) :], outwards))
        if short and 0 not in _grown(inside.shape, outwards):  # PyTorch reads memory nobody wrote
            raise RuntimeError("Padding value causes wrapping around more than once.")
        return bordered(inside, outwards, mode)
    whole = bordered(input, outwards, mode)
    return lay(_cut(whole, inwards), channels_order(whole))


@op
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """`pad` with a constant border; RuntimeError if the numbers do not fit the tensor."""
    require_tensor("constant_pad_nd", "input", 1, input)
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * input.ndim:
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad "
            f"length is {len(pad)} while the input has {input.ndim} dimensions."
        )
    return _constant(input, _sides(pad, input), value)


def _sides(pad: Any, input: Tensor) -> Sides:
    if not isinstance(pad, Sequence):
        raise TypeError(
            f"pad(): argument 'pad' (position 2) must be tuple of ints, not {type(pad).__name__}"
        )
    for index, n in enumerate(pad):
        if not hasattr(n, "__index__"):
            raise TypeError(
                f"pad(): argument 'pad' failed to unpack the object at pos {index + 1} with error "
                f'"type must be tuple of ints,but got {type(n).__name__}"'
            )
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(pad)} and input of dimension {input.ndim}"
        )
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
    return tuple(pairs[::-1])


def _check(input: Tensor, sides: Sides, mode: str) -> None:
    shape, lead = tuple(input.shape), input.ndim - len(sides)
    if mode != "circular" and 0 in shape[1 if input.ndim == len(sides) + 2 else 0 :]:
        raise RuntimeError(
            f"Expected {len(sides) + 1}D or {len(sides) + 2}D (batch mode) tensor with possibly 0 "
            f"batch size and other non-zero dimensions for input, but got: {list(shape)}"
        )
    grown = [n + a + b for n, (a, b) in zip(shape[lead:], sides, strict=True)]
    for axis, (before, after) in enumerate(reversed(sides)):  # PyTorch looks at the last one first
        dim = input.ndim - 1 - axis
        extent = shape[dim]
        if mode == "reflect" and max(before, after) >= extent:
            raise RuntimeError(
                f"Argument #{4 + 2 * axis}: Padding size should be less than the corresponding "
                f"input dimension, but got: padding ({before}, {after}) at dimension {dim} of "
                f"input {list(shape)}"
            )
        if mode == "circular" and max(before, after) > extent:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if extent + before + after < 0 or (mode != "circular" and max(grown) < 1):
            raise RuntimeError(
                f"input (dimension {dim}: {extent}) is too small. Calculated output size: "
                f"{extent + before + after}. Negative padding value is resulting in an empty "
                "dimension"
            )


# --- constant borders -----------------------------------------------------------------------------


def _constant(input: Tensor, sides: Sides, value: Any) -> Tensor:
    for (before, after), extent in zip(sides, input.shape[input.ndim - len(sides) :], strict=True):
        if extent + before + after < 0 or min(extent + before, extent + after) < 0:
            raise RuntimeError(
                f"narrow(): length must be non-negative: padding ({before}, {after}) cuts more "
                f"than there is from a dimension of {extent}"
            )
    if isinstance(value, Tensor):
        refuse_unheld(value, input.dtype)
        value = value.item()
    elif input.dtype.category == 1:
        value = number_in(float(value), input.dtype)  # a double to PyTorch too
    return framed(input, sides, value)


@op
def framed(input: Tensor, sides: Sides, value: Any) -> Tensor:
    """A border of one value; where sides are negative, less than the input."""
    source, lead = input.array, input.ndim - len(sides)
    shape = _grown(source.shape, sides)
    order = channels_order(input)
    array = empty_in(order, shape, input)
    inside: tuple[slice, ...] = (slice(None),) * lead
    for dim, (before, after) in enumerate(sides, lead):
        start, stop = max(before, 0), shape[dim] - max(after, 0)
        for border in (slice(0, start), slice(stop, None)):  # the corners belong to the first
            array[inside + (border,)] = value
        inside += (slice(start, stop),)
    taken = [slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(sides, source.shape[lead:])]
    array[inside] = source[(slice(None),) * lead + tuple(taken)]
    result: Tensor = record(
        "ConstantPadNdBackward0", array, (input,), _framed_vjp, dtype=input.dtype, sides=sides
    )
    return lay(result, order)


def _framed_vjp(node: Any, g: Tensor) -> tuple[Tensor]:
    return (framed(g, tuple([(-a, -b) for a, b in node.sides]), 0),)


batching(framed)(on_value)


def _grown(shape: Sequence[int], sides: Sides) -> tuple[int, ...]:
    lead = len(shape) - len(sides)
    return (*shape[:lead], *[a + n + b for (a, b), n in zip(sides, shape[lead:], strict=True)])


def _cut(input: Tensor, sides: Sides) -> Tensor:
    """Without the borders that negative numbers name."""
    for dim, (before, after) in enumerate(sides, input.ndim - len(sides)):
        if before or after:
            input = input.narrow(dim, -before, input.shape[dim] + before + after)
    return input


# --- borders made of the inside -------------------------------------------------------------------


def _reflect(before: int, extent: int, after: int) -> tuple[slice, slice]:
    last = before + extent - 2
    stop = last - after
    return slice(2 * before, before, -1), slice(last, stop if stop >= 0 else None, -1)


def _replicate(before: int, extent: int, after: int) -> tuple[slice, slice]:
    last = before + extent - 1
    return slice(before, before + 1), slice(last, last + 1)


def _circular(before: int, extent: int, after: int) -> tuple[slice, slice]:
    return slice(extent, extent + before), slice(before, before + after)


_BORDERS = {"reflect": _reflect, "replicate": _replicate, "circular": _circular}
_NAMES = {"reflect": "ReflectionPad", "replicate": "ReplicationPad", "circular": "CircularPad"}


def _moves(shape: Sequence[int], sides: Sides, mode: str) -> Iterator[tuple[int, Any, Any]]:
    """The dimension of each border, where it is, and what it copies; ``shape`` is the inside's."""
    lead = len(shape) - len(sides)
    for dim, (before, after) in enumerate(sides, lead):
        extent = shape[dim]
        first, last = _BORDERS[mode](before, extent, after)
        whole = (slice(None),) * dim
        if before:
            yield dim, (*whole, slice(0, before)), (*whole, first)
        if after:
            yield dim, (*whole, slice(before + extent, None)), (*whole, last)


@op
def bordered(input: Tensor, sides: Sides, mode: str) -> Tensor:
    """Borders on the last dimensions, copied from the inside."""
    source = input.array
    order = None if mode == "circular" else channels_order(input)
    array = empty_in(order, _grown(source.shape, sides), input)
    array[_inside(source.shape, sides)] = source
    for _, border, copied in _moves(source.shape, sides, mode):
        array[border] = array[copied]
    result: Tensor = record(
        f"{_NAMES[mode]}{len(sides)}DBackward0", array, (input,), _bordered_vjp,
        dtype=input.dtype, sides=sides, mode=mode, ties=None if mode == "circular" else TIED,
    )  # fmt: skip
    return leads_back(lay(result if mode == "circular" else keeps(result, input), order), order)


def _inside(shape: Sequence[int], sides: Sides) -> tuple[Any, ...]:
    extents = shape[len(shape) - len(sides) :]
    return (..., *[slice(a, a + n) for (a, _), n in zip(sides, extents, strict=True)])


def _bordered_vjp(node: Any, g: Tensor) -> tuple[Tensor]:
    return (folded_in(g, node.sides, node.mode),)


batching(bordered)(on_value)


@op
def folded_in(g: Tensor, sides: Sides, mode: str) -> Tensor:
    """Borders added to what they were copied from, and taken away: the adjoint of `bordered`."""
    shape = _grown(g.array.shape, tuple([(-a, -b) for a, b in sides]))
    array = run_quietly(_add_borders, g, shape, sides, mode)
    result: Tensor = record(
        f"{_NAMES[mode]}{len(sides)}DBackwardBackward0", array, (g,), _folded_vjp,
        dtype=g.dtype, sides=sides, mode=mode,
    )  # fmt: skip
    return result


def _folded_vjp(node: Any, g: Tensor) -> tuple[Tensor]:
    return (bordered(g, node.sides, node.mode),)


batching(folded_in)(on_value)


def _add_borders(g: Tensor, shape: tuple[int, ...], sides: Sides, mode: str) -> Any:
    array = g.array.astype(g.dtype.compute.numpy)  # a copy, in which 16-bit floats add up unrounded
    for dim, border, copied in reversed(list(_moves(shape, sides, mode))):
        added = array[border]
        array[copied] += added.sum(dim, keepdims=True) if mode == "replicate" else added
    return row_major(array[_inside(shape, sides)]).astype(g.dtype.numpy)


FUNCTIONS = (constant_pad_nd,)
