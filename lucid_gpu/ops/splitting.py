"""Tensors cut into parts: views, by sizes, by numbers of parts, or at positions."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lucid_gpu.core.owner import SameMemory
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import where_cut
from lucid_gpu.dtypes import int64
from lucid_gpu.ops.arguments import guarded, is_number
from lucid_gpu.ops.index_primitives import slice_view
from lucid_gpu.ops.mirrors import bits_of
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import existing_dim, normalize_dim
from lucid_gpu.ops.shape import _share, apart_in_inference, base_array, cat, note_creation, stack
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tape.native import core
from lucid_gpu.tensor import Tensor, is_unshared, on_borrowed


@op
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """``length`` positions of a dimension from ``start`` on, as a view.

    RuntimeError for 0-d tensors, more positions than there are, and a ``start`` in a tensor that is
    not one integer; IndexError for a ``start`` that there is not.
    """
    shape = input._expr.shape
    if not shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, len(shape))
    if isinstance(start, Tensor) and (start.ndim or start.dtype.category != 1):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    extent, start = shape[dim], operator.index(start)
    if not -extent <= start <= extent:
        raise IndexError(
            f"start out of range (expected to be in range of [-{extent}, {extent}], but got "
            f"{start})"
        )
    if start < 0:
        start += extent
    if start < 0 or start + length > extent:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({extent})."
        )
    lead = (slice(None),) * dim
    return slice_view(input, (*lead, slice(start, start + length)), "SliceBackward0")


def _parts(extent: int, split_size_or_sections: Any, dim: int) -> list[slice]:
    """The consecutive parts of a dimension, of one size or of given sizes."""
    if is_number(split_size_or_sections):
        step = operator.index(split_size_or_sections)
        if step <= 0 and extent:
            raise RuntimeError(
                f"split expects split_size be non-negative and non-zero, but got split_size={step}"
            )
        return [slice(i, min(i + step, extent)) for i in range(0, extent, step or 1)] or [slice(0)]
    sizes = list(split_size_or_sections)
    if sum(sizes) != extent:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {extent} (input tensor's "
            f"size at dimension {dim}), but got split_sizes={sizes}"
        )
    ends = list(itertools.accumulate(sizes))
    return [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]


def _dimension_to_split(input: Tensor, dim: int, name: str) -> int:
    rank = len(input._expr.shape)
    if not rank:
        verb = "expected" if name == "tensor_split" else "expects"
        raise RuntimeError(
            f"{name} {verb} at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    return dim if type(dim) is int and 0 <= dim < rank else normalize_dim(dim, rank)


@op
def split(
    input: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None
) -> tuple[Tensor, ...]:
    """Views of consecutive parts, of one size or of given sizes.

    Parameters
    ----------
    split_size_or_sections : int or sequence of int
        The size of each part, the last one smaller if it must be; or all sizes.
    dim : int

    Raises
    ------
    RuntimeError
        For 0-d tensors, a size that is not above 0, and sizes whose sum is another.
    IndexError
        For a ``dim`` that there is not.
    """
    if split_size is not None:
        split_size_or_sections = split_size
    dim = _dimension_to_split(input, dim, "split")
    if core is not None and type(split_size_or_sections) is int and split_size_or_sections > 0:
        views: tuple[Tensor, ...] | None = core.parts(
            input, dim, split_size_or_sections, slice_view, "SliceBackward0"
        )
        if views is not None:
            return views
    parts = _parts(input._expr.shape[dim], split_size_or_sections, dim)
    one_size = isinstance(split_size_or_sections, int)
    name = "SplitBackward0" if one_size else "SplitWithSizesBackward0"
    return _views_of(input, name, dim, parts)


@op
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts, of these sizes along a dimension, else of the input's shape."""
    return split(input, list(split_sizes), dim)


@op
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` views along a dimension, of equal shape but for the last; of an empty
    dimension, ``chunks`` empty ones.

    RuntimeError where ``chunks`` is not above 0; IndexError for a ``dim`` that there is not.
    """
    chunks = operator.index(chunks)
    size = _chunk_size(input, chunks, dim)
    if not input._expr.shape[dim]:  # PyTorch gives as many as were asked for
        return split(input, [0] * chunks, dim)
    return split(input, size, dim)


def _chunk_size(input: Tensor, chunks: int, dim: int) -> int:
    extent = input._expr.shape[_dimension_to_split(input, dim, "chunk")]
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return max(1, -(-extent // chunks))


@op
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dimension, which they lose.

    IndexError for 0-d tensors.
    """
    shape = input._expr.shape
    dim = existing_dim(dim, len(shape))
    if core is not None:
        views: tuple[Tensor, ...] | None = core.parts(input, dim, 0, slice_view, "SliceBackward0")
        if views is not None:
            return views
    return _views_of(input, "UnbindBackward0", dim, range(shape[dim]))


def _views_of(input: Tensor, name: str, dim: int, parts: Sequence[Any]) -> tuple[Tensor, ...]:
    """Several views at once, by one node: they must not be written while grad is recorded."""
    lead = (slice(None),) * dim
    indices = [(*lead, part, ...) for part in parts]
    if input._wrapper is not None:
        return tuple([slice_view(input, index, "SliceBackward0") for index in indices])
    base_array(input)  # where a pending value lies is decided when it is computed
    results = _parts_of(apart_in_inference(input), name, dim, indices)
    shown = []
    for result, index in zip(results, indices, strict=True):
        result = _share(input, result, (slice_view, (index, "SliceBackward0")))
        note_creation(input, result, several=True)
        shown.append(result)
    return tuple(shown)


def _parts_of(input: Tensor, name: str, dim: int, indices: Sequence[Any]) -> tuple[Tensor, ...]:
    array, program = base_array(input), input._expr.program
    arrays = [
        part if (part := array[index]).size else where_cut(part, array, index) for index in indices
    ]
    vjp = _unbind_vjp if arrays and arrays[0].ndim < array.ndim else _split_vjp
    results: tuple[Tensor, ...] = record(
        name, (*arrays,), (input,), vjp, dtype=program.dtype, chosen=not program.free, dim=dim
    )
    return results


def _split_vjp(node: Any, *parts: Tensor) -> Any:
    whole = None if is_grad_enabled() or open_levels else _side_by_side(parts, node.dim)
    return (cat(parts, node.dim) if whole is None else whole,)


def _side_by_side(parts: Sequence[Tensor], dim: int) -> Tensor | None:
    """The tensor that the parts are consecutive views of, as a kernel may have laid them out."""
    for part in parts:
        program = part._expr.program
        if not (program.is_load and part._expr.leaves[0].borrowed and is_unshared(part)):
            return None
    if program.marks:
        return None
    arrays = [part.array for part in parts]
    memory, first = arrays[0].base, arrays[0].shape
    if type(memory) is not type(arrays[0]):  # none, or what is no array
        return None
    if {*map(id, [array.base for array in arrays])} != {id(memory)}:
        return None
    shape = (*first[:dim], sum([a.shape[dim] for a in arrays]), *first[dim + 1 :])
    if memory.shape != shape or memory.dtype != arrays[0].dtype:
        return None
    address = backend(program.device).address
    strides, at = memory.strides, address(memory)
    for array in arrays:
        if array.strides != strides or address(array) != at:
            return None
        at += array.shape[dim] * strides[dim]
    return on_borrowed(program, memory)


def _unbind_vjp(node: Any, *parts: Tensor) -> Any:
    return (stack(parts, node.dim),)


@op
def unsafe_split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """As `split`, but the parts may be written in place.

    Writing a part changes the input's memory but not its history: do not use the input, or parts
    that overlap, afterwards.

    RuntimeError as `split`; IndexError for a ``dim`` that there is not.
    """
    dim = _dimension_to_split(input, dim, "split")
    input = input.clone() if bits_of(input) else input
    parts = _parts(input.shape[dim], split_size_or_sections, dim)
    lead = (slice(None),) * dim
    results = _parts_of(input, "UnsafeSplitBackward0", dim, [(*lead, p, ...) for p in parts])
    memory = input._memory()
    for result in results:
        result._storage = SameMemory(memory)
        memory.add(result)
        memory.add_cell(result._expr.leaves[0])
    return results


@op
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """As `split_with_sizes`, but the parts may be written in place: see `unsafe_split`."""
    return unsafe_split(input, list(split_sizes), dim)


@op
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As `chunk`, but the parts may be written in place: see `unsafe_split`.

    RuntimeError where ``chunks`` is not above 0; IndexError for a ``dim`` that there is not.
    """
    return unsafe_split(input, _chunk_size(input, chunks, dim), dim)


@op
def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None,
    sections: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Views of as many parts, their sizes as equal as can be, or cut at the given positions.

    Parameters
    ----------
    indices_or_sections : int, or sequence or vector of int
        How many parts, the first ones longer by one where they must be; or where to cut.
    dim : int

    Raises
    ------
    RuntimeError
        For 0-d tensors, a number of parts that is not above 0, and a tensor of another type than
        int64.
    TypeError
        For anything but a number or a sequence.
    IndexError
        For a ``dim`` that there is not.
    """
    if indices_or_sections is None:
        indices_or_sections = sections if indices is None else indices
    if isinstance(indices_or_sections, Tensor):
        if indices_or_sections.dtype is not int64:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                f"{indices_or_sections.dtype.type_name}"
            )
        if indices_or_sections.ndim > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                "one-dimensional tensor, but got a tensor with "
                f"{indices_or_sections.ndim} dims"
            )
        indices_or_sections = indices_or_sections.tolist()
    if is_number(indices_or_sections) and hasattr(indices_or_sections, "__index__"):
        indices_or_sections = operator.index(indices_or_sections)
    elif isinstance(indices_or_sections, str) or not isinstance(indices_or_sections, Iterable):
        raise TypeError(
            "tensor_split(): argument 'indices_or_sections' (position 2) must be int or ints, not "
            f"{type(indices_or_sections).__name__}"
        )
    dim = _dimension_to_split(input, dim, "tensor_split")
    extent = input.shape[dim]
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {count}")
        cuts = [extent // count * i + min(i, extent % count) for i in range(1, count)]
    else:
        cuts = [slice(None, cut).indices(extent)[1] for cut in indices_or_sections]
    bounds = itertools.pairwise([0, *cuts, extent])
    return tuple([narrow(input, dim, low, max(high - low, 0)) for low, high in bounds])


_OPS: tuple[Callable[..., Any], ...] = (
    narrow, split, split_with_sizes, chunk, unbind, unsafe_split, unsafe_split_with_sizes,
    unsafe_chunk, tensor_split,
)  # fmt: skip
METHODS = FUNCTIONS = tuple(map(guarded, _OPS))
