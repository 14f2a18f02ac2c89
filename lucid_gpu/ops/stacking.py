"""Tensors joined and cut by NumPy's names, and spread to one shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion import typing_rules
from lucid_gpu.ops import shape
from lucid_gpu.ops.arguments import no_tensor, public, require_one_device, several
from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.splitting import tensor_split
from lucid_gpu.storage import Size
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor


@op(autocast="promote")
def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Alias of `cat`."""
    return shape.cat(tensors, dim)


@op(autocast="promote")
def concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Alias of `cat`."""
    return shape.cat(tensors, dim)


def _each(rule: Callable[[Tensor], Tensor], tensors: tuple[Any, ...]) -> Any:
    """A rule applied to a tensor, or to each of several."""
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return rule(tensors[0])
    operands = tensors[0] if len(tensors) == 1 else tensors
    return tuple([rule(t) for t in _all_tensors(operands)])


def _all_tensors(values: Any) -> Any:
    """What is iterated over, and no tensor in it is refused."""
    for index, value in enumerate(values):
        if not isinstance(value, Tensor):
            raise no_tensor(index, value)
        yield value


@op
def atleast_1d(*tensors: Any) -> Any:
    """Numbers as vectors; others as they are. One tensor, several, or a sequence of them."""
    return _each(_at_least_1d, tensors)


@op
def atleast_2d(*tensors: Any) -> Any:
    """Numbers and vectors as matrices of one row; others as they are."""
    return _each(_at_least_2d, tensors)


@op
def atleast_3d(*tensors: Any) -> Any:
    """(n,) as (1, n, 1) and (n, m) as (n, m, 1); others as they are."""
    return _each(_at_least_3d, tensors)


def _at_least_1d(t: Tensor) -> Tensor:
    return t if t.ndim else t.reshape(1)


def _at_least_2d(t: Tensor) -> Tensor:
    return t if t.ndim > 1 else _at_least_1d(t).unsqueeze(0)


def _at_least_3d(t: Tensor) -> Tensor:
    return t if t.ndim > 2 else _at_least_2d(t).unsqueeze(-1)


def _joined(name: str, tensors: Any, raise_rank: Any, dim: int | None) -> Tensor:
    raised = [raise_rank(t) for t in _all_tensors(several(name, tensors))]
    if not raised:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    if dim is None:
        dim = 0 if raised[0].ndim == 1 else 1
    return shape.cat(raised, dim)


@op
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors side by side: along the second dimension, vectors along their only one.

    RuntimeError without tensors.
    """
    return _joined("hstack", tensors, _at_least_1d, None)


@op
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one below the other: along the first dimension, vectors as rows.

    RuntimeError without tensors.
    """
    return _joined("vstack", tensors, _at_least_2d, 0)


@op
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one behind the other, along the third dimension; vectors as ``(1, n, 1)``.

    RuntimeError without tensors.
    """
    return _joined("dstack", tensors, _at_least_3d, 2)


@op
def row_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Alias of `vstack`."""
    return vstack(tensors)


@op
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors as the columns of a matrix; matrices side by side.

    RuntimeError without tensors.
    """

    def as_columns(t: Tensor) -> Tensor:
        return t if t.ndim > 1 else t.reshape(t.numel(), 1)

    return _joined("column_stack", tensors, as_columns, 1)


def _cut(name: str, input: Tensor, where: Any, dim: int, least: int) -> tuple[Tensor, ...]:
    if input.ndim < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, "
            f"but got a tensor with {input.ndim} dimensions!"
        )
    if isinstance(where, int) and (where < 1 or input.shape[dim] % where):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{input.shape[dim]} is not divisible by the split_size {where}!"
        )
    return tensor_split(input, where, dim)


@op
def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of parts side by side: equal ones, or cut at the given positions.

    RuntimeError for 0-d tensors, and a number of parts that does not divide the dimension.
    """
    return _cut("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1, 1)


@op
def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of parts one below the other, of the input's shape but for the first dimension.

    RuntimeError for fewer than two dimensions, and a number of parts that does not divide the
    first.
    """
    return _cut("vsplit", input, indices_or_sections, 0, 2)


@op
def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of parts one behind the other, of the input's shape but for the third dimension.

    RuntimeError for fewer than three dimensions, and a number of parts that does not divide the
    third.
    """
    return _cut("dsplit", input, indices_or_sections, 2, 3)


@op
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere; vectors count as rows.

    RuntimeError for more than two dimensions.
    """
    for i, t in enumerate(_all_tensors(tensors)):
        if t.ndim > 2:
            raise RuntimeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                f"{i} has {t.ndim} dimensions"
            )
    if not tensors:
        return zeros(1, 0)
    require_one_device("block_diag", *tensors)
    blocks = [_at_least_2d(t) for t in tensors]
    kind = dt.result_type([(t.dtype, t.ndim) for t in tensors], [])
    width, left, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        n, m = block.shape
        before, behind = [block.new_zeros((n, w), dtype=kind) for w in (left, width - left - m)]
        rows.append(shape.cat([before, block.to(kind), behind], 1))
        left += m
    return shape.cat(rows, 0)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of these shapes broadcast to; a number is a shape of one dimension.

    RuntimeError if there is none, and for negative extents.
    """
    extents = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    for one in extents:
        if any(n < 0 for n in one):
            raise RuntimeError(f"Trying to create tensor with negative dimension ({min(one)})")
    try:
        return Size(typing_rules.broadcast_shapes(extents, "broadcast_shapes"))
    except RuntimeError as error:
        raise RuntimeError(
            f"Shape mismatch: objects cannot be broadcast to a single shape ({error})"
        ) from None


@op
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of tensors in the shape they broadcast to."""
    operands = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    shapes = [tuple(t.shape) for t in _all_tensors(operands)]
    wanted = typing_rules.broadcast_shapes(shapes, "broadcast_tensors")
    return tuple([t.expand(wanted) for t in operands])


METHODS = (hsplit, vsplit, dsplit)
_JOINING = tuple(
    [public(f) for f in (concat, concatenate, hstack, vstack, dstack, row_stack, column_stack)]
)
FUNCTIONS = (*METHODS, *_JOINING, atleast_1d, atleast_2d, atleast_3d, block_diag,
             broadcast_shapes, broadcast_tensors)  # fmt: skip
