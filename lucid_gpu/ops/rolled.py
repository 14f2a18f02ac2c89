"""Elements moved around a tensor: rolled, rotated, mirrored."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lucid_gpu.core.engine import gathering
from lucid_gpu.core.program import Program
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.copies import duplicate
from lucid_gpu.ops.arguments import is_number, public
from lucid_gpu.ops.memory_formats import channels_order, lying
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import _sizes, clone, flip, own, owned, transpose
from lucid_gpu.storage import contiguous_format
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor


@op
@lying("input", rule=channels_order)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along dimensions; those that leave at one end enter at the other.

    Parameters
    ----------
    input : Tensor
    shifts : int or sequence of int
        How far; negative ones move toward the front.
    dims : int or sequence of int, optional
        Without it the tensor is rolled as if it were a vector.

    Returns
    -------
    Tensor, a copy

    Raises
    ------
    RuntimeError
        If ``shifts`` and ``dims`` differ in number, or there are no shifts.
    IndexError
        For a dimension that there is not.
    """
    by = _sizes((shifts,))
    over = () if dims is None else (dims,) if is_number(dims) else tuple(dims)
    if not by:
        raise RuntimeError("`shifts` required")
    if not over and len(by) == 1:
        return own(rolled(input.reshape(-1), by, (0,)).reshape(tuple(input.shape)))
    if len(by) != len(over):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(over)}")
    if not input.ndim:
        raise IndexError(f"Dimension specified as {over[0]} but tensor has no dimensions")
    return rolled(input, by, [normalize_dim(dim, input.ndim) for dim in over])


@op
def rolled(input: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    """The same for as many dimensions as shifts, counted from the front."""
    original = array = input.array
    program = input._expr.program
    for shift, dim in zip(shifts, dims, strict=True):
        array = _moved(array, shift, dim, program)
    array = duplicate(array) if array is original else array
    result: Tensor = record(
        "RollBackward0", array, (input,), _roll_vjp, dtype=program.dtype, shifts=shifts, dims=dims,
        look_around=gathering,
    )  # fmt: skip
    return result


def _roll_vjp(node: Any, g: Tensor) -> Any:
    back = [-shift for shift in node.shifts]
    gathered = node.__dict__.pop("gathered", None)
    if not gathered:
        return (rolled(g, back, node.dims),)
    others = [([-shift for shift in other.shifts], other.dims) for other, _ in gathered]
    cotangents = [g, *[cotangent for _, cotangent in gathered]]
    return (_sum_of_rolled(cotangents, [(back, node.dims), *others]),)


@jvp(_roll_vjp)
def _roll_jvp(call: Call) -> Any:
    return [rolled(call.tangent(), call.attributes["shifts"], call.attributes["dims"])]


@batching(rolled)
def _rolled_batched(level: Batch, f: Any, x: Tensor, shifts: Any, dims: Any) -> Any:
    return level.wrap(f(level.value(x), shifts, [d + 1 for d in dims]))


def _sum_of_rolled(values: Sequence[Tensor], ways: Sequence[tuple[Any, Any]]) -> Tensor:
    """The sum of tensors, each rolled its own way, in one array: a stencil's gradient."""
    first = values[0]
    program, shape, add = first._expr.program, first._expr.shape, xp_of(first).add
    total: Any = None
    for value, (shifts, dims) in zip(values, ways, strict=True):
        array = original = value.array
        if total is not None and tuple(dims) == (0,) and shape[0]:
            _add_moved(add, total, array, shifts[0] % shape[0])
            continue
        for shift, dim in zip(shifts, dims, strict=True):
            array = _moved(array, shift, dim, program)
        if total is None:
            total = duplicate(array) if array is original else array
        else:
            add(total, array, total)
    result: Tensor = record(
        "RollBackward0", total, values, _sum_of_rolled_vjp, dtype=program.dtype, ways=ways
    )
    return result


def _add_moved(add: Any, total: Any, array: Any, cut: int) -> None:
    """Add an array rolled along its first dimension, whose blocks lie in one piece."""
    head, tail, first, last = _blocks(0, cut, len(array))
    for to, of in ((tail, first), (head, last)):
        part = total[to]
        add(part, array[of], part)


def _sum_of_rolled_vjp(node: Any, g: Tensor) -> Any:
    return [rolled(g, [-shift for shift in shifts], dims) for shifts, dims in node.ways]


def _moved(array: Any, shift: int, dim: int, like: Program) -> Any:
    """Two blocks written where they come to stand."""
    shape = array.shape
    extent = shape[dim] if shape else 0
    cut = shift % extent if extent else 0
    if not cut:
        return array
    moved = backend(like.device).empty(shape, like.dtype, like.device)
    head, tail, first, last = _blocks(dim, cut, extent)
    moved[tail], moved[head] = array[first], array[last]
    return moved


@functools.lru_cache(maxsize=256)
def _blocks(dim: int, cut: int, extent: int) -> tuple[tuple[slice, ...], ...]:
    """Where the blocks come to stand, and where they stood."""
    before = (slice(None),) * dim
    ends = slice(cut), slice(cut, None), slice(extent - cut), slice(extent - cut, None)
    return tuple([(*before, end) for end in ends])


@op
@owned
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """A plane turned by ``k`` times 90 degrees, from the first of two dimensions to the second.

    RuntimeError for what is not two different dimensions; IndexError for a dimension that there is
    not.

    For odd ``k`` their extents are exchanged in the result's shape.
    """
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = (normalize_dim(d, input.ndim) for d in dims)
    if a == b:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    k %= 4
    if k == 0:
        return clone(input, memory_format=contiguous_format)
    if k == 2:
        return flip(input, a, b)
    return transpose(flip(input, b), a, b) if k == 1 else flip(transpose(input, a, b), b)


def __reversed__(self: Tensor) -> Tensor:
    """The first dimension in reverse order: what ``reversed(x)`` gives."""
    return flip(self, 0) if self.ndim else self


@op
def flipud(input: Tensor) -> Tensor:
    """The first dimension in reverse order, as a copy.

    RuntimeError for 0-d tensors.
    """
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@op
def fliplr(input: Tensor) -> Tensor:
    """The second dimension in reverse order, as a copy of the same shape.

    RuntimeError for fewer than two dimensions.
    """
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


FUNCTIONS = tuple([public(function) for function in (roll, rot90, flipud, fliplr)])
METHODS = (*FUNCTIONS, __reversed__)
