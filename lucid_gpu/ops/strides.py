"""Where a tensor's elements stand in memory: strides told, and views by other strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from lucid_gpu.core.layout import may_overlap
from lucid_gpu.core.owner import SameMemory
from lucid_gpu.devices import xp_of
from lucid_gpu.devices.copies import inverse, part_of
from lucid_gpu.devices.cuda_memory import addressed
from lucid_gpu.fusion import scheduler
from lucid_gpu.kernels.rows import address
from lucid_gpu.ops.in_place import refers_to_itself
from lucid_gpu.ops.index_primitives import getitem_parsed, zeros_with_values
from lucid_gpu.ops.mirrors import in_memory
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import _sizes, array_in_order, base_array, movedim, permute, view_of
from lucid_gpu.storage import memory_format
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, store_written


def stride(self: Tensor, dim: int | None = None) -> Any:
    """The distances of neighboring elements in each dimension, or in one, in elements.

    IndexError for a ``dim`` that there is not.
    """
    strides = _strides(self)
    return strides if dim is None else strides[normalize_dim(dim, self.ndim)]


def _strides(t: Tensor) -> tuple[int, ...]:
    t = in_memory(t)
    t._load()  # where a pending value will stand is decided when it is computed
    if t._expr.program.free:
        array_in_order(t)
    program, shape = t._expr.program, t._expr.shape
    if 0 in shape and t._base is not None and t._base.numel():
        return _steps_of_nothing(shape, base_array(t))
    if not program.is_load or not program.strided:  # row-major
        extents = [max(n, 1) for n in shape]
        behind = accumulate(extents[:0:-1], lambda a, b: a * b, initial=1)
        return tuple(behind)[::-1] if extents else ()
    return tuple([s // program.dtype.itemsize for s in t._expr.leaves[0].array.strides])


def _steps_of_nothing(shape: tuple[int, ...], array: Any) -> tuple[int, ...]:
    """The strides of a view without elements: those of the elements it was cut from."""
    steps = [s // array.itemsize for s in array.strides]
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] == 1 and not steps[d]:  # a new dimension
            steps[d] = steps[d + 1] * max(shape[d + 1], 1) if d + 1 < len(shape) else 1
    return tuple(steps)


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions in the order in which they lie in memory, that of the largest steps first.

    Parameters
    ----------
    ambiguity_check : bool or list of memory_format
        Refuse a tensor that lies in several orders at once, or not in exactly one of the formats.

    Raises
    ------
    RuntimeError
        For such a tensor.
    TypeError
        For anything but a bool or memory formats.
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else ()
    if not isinstance(ambiguity_check, (bool, list)) or not all(
        isinstance(f, memory_format) for f in formats
    ):
        raise TypeError(
            "The ambiguity_check argument must be a bool or a list of memory formats, got "
            f"{ambiguity_check!r}"
        )
    steps, shape = stride(self), self.shape
    if ambiguity_check is True:
        ambiguous = 1 in shape or len(set(steps)) < len(steps)
    else:
        ambiguous = bool(formats) and sum(self.is_contiguous(memory_format=f) for f in formats) != 1
    if ambiguous:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            f"memory formats: its shape is {list(shape)} and its strides are {list(steps)}"
        )
    return tuple(sorted(range(self.ndim), key=lambda d: steps[d], reverse=True))


def storage_offset(self: Tensor) -> int:
    """The offset of this tensor's first element in its storage, in elements."""
    return _memory(self)[1]


def data_ptr(self: Tensor) -> int:
    """Return the address of the first element, 0 where there are none, for others to use.

    The memory counts as handed out for as long as it lives, as by `numpy` while its array lives:
    pending values that read it are computed now, ops on it are computed at once, what is written in
    place goes there.
    """
    shown = in_memory(self)
    if self.device.type != "meta" and self.numel() and not isinstance(shown.array, Released):
        scheduler.begin_step()
        store_written()
        shown._hand_out(forever=True)
        if self.device.type == "cuda":
            addressed.append(shown.array)
    return place_of(self)


def place_of(t: Tensor) -> int:
    """Return the address of the first element of ``t``, 0 where there are none, for comparisons."""
    if t.device.type == "meta":
        return 0
    array = array_in_order(t)
    if isinstance(array, Released):
        return address(array.memory) + array.offset if array.memory.size else 0
    return address(array) if t.numel() else 0


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors are the same elements of the same memory in the same order."""
    records = self._memory(), tensor._memory()
    one, other = [r.memory if isinstance(r, SameMemory) else r for r in records]
    same = one is other and self.shape == tensor.shape
    return same and _strides(self) == _strides(tensor) and place_of(self) == place_of(tensor)


def _memory(t: Tensor) -> tuple[Any, int, int]:
    """An array at the start of a tensor's memory, the tensor's offset there, elements in all."""
    t = in_memory(t)
    array, item = array_in_order(t), t.dtype.itemsize
    if isinstance(array, Released):
        count = array.memory.nbytes // item
        return (
            part_of(array.memory, (count,), t.dtype.numpy, 0, (item,)),
            array.offset // item,
            count,
        )
    start, part = _first_on_memory(array), t._storage and t._storage.lent_part()
    if part is not None and _first_on_memory(part) is start:
        start = part
    spanned = span(start.shape, [s // start.itemsize for s in start.strides])
    count = start.itemsize * spanned // array.itemsize
    if start.dtype != array.dtype:  # a memory of bytes, or a view of another type
        row = xp_of(t).lib.stride_tricks.as_strided(start, (spanned,), (start.itemsize,))
        start = part_of(row, (count,), array.dtype, 0, (array.itemsize,))
    item = array.itemsize
    return start, (address(array) - address(start)) // item, count


def _first_on_memory(array: Any) -> Any:
    """The largest array that an array is known to be a part of."""
    kind, first, base = type(array), array, array.base
    while base is not None:
        first = base if isinstance(base, kind) else first
        base = getattr(base, "base", None)
    return first


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of memory lie from the first to the last."""
    if 0 in sizes:
        return 0
    return 1 + sum([(n - 1) * s for n, s in zip(sizes, strides, strict=True)])


class Released:
    """Stands for the array of a tensor whose elements its storage no longer has.

    Attributes
    ----------
    offset : int
        Where they begin in the memory, in bytes.
    lies : tuple of int
        The strides in bytes.
    memory : array
        What there is of the memory.
    """

    def __init__(self, offset: int, lies: tuple[int, ...], memory: Any) -> None:
        self.offset, self.lies, self.memory = offset, lies, memory

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"the storage of this tensor was resized to {self.memory.nbytes} bytes, and its "
            "elements are not there; untyped_storage().resize_(...) before it is read or written"
        )

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self._refuse()

    __array__ = __array_ufunc__ = __array_function__ = __len__ = __getitem__ = _refuse


# --- views by strides -----------------------------------------------------------------------------


@op
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view of a tensor's memory by sizes and strides.

    Parameters
    ----------
    size, stride : sequences of int
        The view's sizes, and the distances of neighboring elements in memory, in elements.
    storage_offset : int, optional
        Of its first element; the input's own by default.

    Returns
    -------
    Tensor
        Its gradient is added up for elements that occur several times.

    Raises
    ------
    RuntimeError
        For a view that does not lie within the memory.
    """
    sizes, strides = _sizes((size,)), _sizes((stride,))
    if len(sizes) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    _refuse_negative(strides)
    start, own, count = _memory(input)
    first = own if storage_offset is None else storage_offset
    end, item = first + span(sizes, strides), start.itemsize
    if math.prod(sizes) and (first < 0 or end > count):
        raise RuntimeError(
            f"setStorage: sizes {list(sizes)}, strides {list(strides)}, storage offset {first}, "
            f"and itemsize {item} requiring a storage size of {end * item} are out of bounds for "
            f"storage of size {count * item}"
        )
    return restrided(input, sizes, strides, first - own, _strides(input))


def _refuse_negative(strides: Sequence[int]) -> None:
    if any(s < 0 for s in strides):
        raise RuntimeError(
            "as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(strides)}"
        )


@op
def restrided(
    input: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], relative: int,
    own: tuple[int, ...], batch: int = 0,
) -> Tensor:  # fmt: skip
    """`as_strided` from the first element on, of any tensor whose strides should be ``own``.

    A tensor that lies otherwise is laid so first: then the result is no view of it. What its memory
    does not have is zero.

    Parameters
    ----------
    batch : int
        How many dimensions in front count examples, each of which is seen from its own start.
    """
    steps, shape = _strides(input), tuple(input.shape)
    start, offset, count = _memory(input)
    sizes_of_all, strides_of_all = (*shape[:batch], *sizes), (*steps[:batch], *strides)
    first = offset + relative
    out = first < 0 or first + span(sizes_of_all, strides_of_all) > count
    otherwise = any(s != m for s, m, n in zip(steps[batch:], own, shape[batch:]) if n > 1)
    if 0 not in sizes_of_all and (out or otherwise):
        low = min(relative, 0)
        end = max(relative + span(sizes, strides), span(shape[batch:], own))
        memory = in_rows_of_memory(input, own, low, end, batch)
        return restrided(memory, sizes, strides, relative - low, (1,), batch)
    restride, item = xp_of(input).lib.stride_tricks.as_strided, start.itemsize
    flat = restride(start, (count,), (item,))
    seen = restride(flat[first:], sizes_of_all, tuple([s * item for s in strides_of_all]))
    return view_of(
        input, "AsStridedBackward0", seen, _as_strided_vjp,
        (restrided, (sizes, strides, relative, own, batch)),
        view=(sizes, strides, relative), whole=(shape, own), batch=batch,
    )  # fmt: skip


@batching(restrided)
def _restrided_batched(
    level: Batch, f: Any, x: Tensor, sizes: Any, strides: Any, relative: int, own: Any,
    batch: int = 0,
) -> Any:  # fmt: skip
    return level.wrap(f(level.value(x), sizes, strides, relative, own, batch + 1))


@batching(as_strided)
def _as_strided_batched(
    level: Batch, f: Any, x: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Any:
    """An offset is that of the first example: the others look as far from their own start."""
    sizes, strides = _sizes((size,)), _sizes((stride,))
    if len(sizes) != len(strides):
        raise RuntimeError(
            "Tensor.as_strided(size, stride, ...): size and stride must have the same length! Got "
            f"size {list(sizes)} and stride {list(strides)}"
        )
    levels, value = [level], level.value(x)
    while value._wrapper is not None and value._wrapper.level.batches:
        levels.append(value._wrapper.level)
        value = levels[-1].value(value)
    steps, count = _strides(value), len(levels)
    _refuse_negative((*steps[:count], *strides))
    start, own = _memory(value)[1], steps[count:]
    first = start if storage_offset is None else storage_offset
    end, last = first + span(sizes, strides), start + span(tuple(x.shape), own)
    if 0 not in sizes and (first < start or end > last):
        raise RuntimeError(
            f"result = tensor.as_strided({list(sizes)}, {list(strides)}, {first}) can access "
            f"memory outside of `tensor`. `result` can access some memory in range [{first}, "
            f"{end}], but `tensor` can only access some memory in range [{start}, {last}]. This is "
            "not supported inside of vmap, please try to rewrite the `as_strided` call as a "
            "sequence of PyTorch view operations"
        )
    # tangents may differ where examples share their values: these dimensions come first
    extents = tuple(value.shape)[:count]
    order = sorted(range(count), key=lambda d: steps[d] != 0 and extents[d] > 1)
    apart = sum([steps[d] == 0 or extents[d] == 1 for d in order])
    value = permute(value, (*order, *range(count, value.ndim)))
    sizes = (*[extents[d] for d in order[apart:]], *sizes)
    strides = (*[steps[d] for d in order[apart:]], *strides)
    own = (*[steps[d] for d in order[apart:]], *own)
    result = restrided(value, sizes, strides, first - start, own, apart)
    result = permute(result, (*inverse(tuple(order)), *range(count, result.ndim)))
    for one in reversed(levels):
        result = one.wrap(result)
    return result


def in_rows_of_memory(
    input: Tensor, own: tuple[int, ...], low: int, end: int, batch: int = 0
) -> Tensor:
    """Memory in which the elements lie by strides ``own``, with zeros between and around.

    Elements that share a place are averaged, as gradients are divided among them.

    Parameters
    ----------
    low, end : int
        Where the memory begins and ends, seen from the first element.
    batch : int
        How many dimensions in front count rows of such memory.
    """
    shape, front = tuple(input.shape), (slice(None),) * batch
    inner = _positions(xp_of(input), shape[batch:], own) - low
    memory = zeros_with_values(input, (*front, inner), (*shape[:batch], end - low))
    counts = _sharing(input, shape[batch:], own, inner, end - low)
    return memory if counts is None else memory / counts.clamp(min=1)


def _as_strided_vjp(node: Any, g: Tensor) -> Any:
    sizes, strides, relative = node.view
    shape, own = node.whole
    batch, low, xp = node.batch, min(relative, 0), xp_of(g)
    front, inside = (slice(None),) * batch, shape[batch:]
    end = max(relative + span(sizes, strides), span(inside, own)) - low
    seen = _positions(xp, sizes, strides) + (relative - low)
    inner = _positions(xp, inside, own) - low
    memory = zeros_with_values(g, (*front, seen), (*shape[:batch], end))
    gradient = getitem_parsed(memory, (*front, inner))
    counts = _sharing(g, inside, own, inner, end)
    if counts is not None:
        gradient = gradient / getitem_parsed(counts, (inner,))
    return (gradient,)


def _sharing(like: Tensor, shape: Any, own: Any, inner: Any, end: int) -> Tensor | None:
    """How many elements share each place of a memory; None where none can."""
    if not may_overlap(shape, own):
        return None
    return zeros_with_values(like.new_ones(shape), (inner,), (end,))


def _positions(xp: Any, sizes: Sequence[int], strides: Sequence[int]) -> Any:
    """Where the elements of such a view stand, from its first."""
    positions = xp.zeros(tuple(sizes), "int64")
    for d, (n, s) in enumerate(zip(sizes, strides, strict=True)):
        positions += (xp.arange(n) * s).reshape([-1 if i == d else 1 for i in range(len(sizes))])
    return positions


@op
def as_strided_(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """`as_strided` in place: the memory stays as it is."""
    from lucid_gpu.ops.axes import becoming

    return becoming(as_strided)(self, size, stride, storage_offset)


@op
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:  # fmt: skip
    """A copy of the input with ``src`` where `as_strided` looks."""
    copy = input.clone()
    view = as_strided(copy, size, stride, storage_offset)
    if refers_to_itself(view.array):
        raise RuntimeError("as_strided_scatter: the view must not name an element twice")
    if tuple(src.shape) != tuple(view.shape):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(view.shape)}"
        )
    view.copy_(src)
    return copy


@op
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of ``size`` that slide over a dimension by ``step``, as a view; they come last.

    Returns
    -------
    Tensor
        With ``(n - size) // step + 1`` in place of the dimension's extent ``n``, and one more
        dimension of extent ``size``.

    Raises
    ------
    RuntimeError
        For a ``size`` that is negative or above the extent, and a ``step`` that is not above 0.
    IndexError
        For a ``dim`` that there is not.
    """
    dim = normalize_dim(dimension, self.ndim)
    extent = self.shape[dim] if self.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > extent:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dim} is {extent} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not self.ndim:
        return self.reshape(1)[:size]
    array = base_array(self)
    shape, strides = list(array.shape), list(array.strides)
    shape[dim] = (extent - size) // step + 1
    along = strides[dim]
    strides[dim] *= step
    seen = xp_of(self).lib.stride_tricks.as_strided(array, (*shape, size), (*strides, along))
    return view_of(
        self, "UnfoldBackward0", seen, _unfold_vjp, (unfold, (dim, size, step)),
        dim=dim, size=size, by=step, shape=tuple(self.shape),
    )  # fmt: skip


def _unfold_vjp(node: Any, g: Tensor) -> Any:
    xp = xp_of(g)
    places = xp.arange(g.shape[node.dim])[:, None] * node.by + xp.arange(node.size)
    windows = movedim(g, -1, node.dim + 1)
    return (zeros_with_values(windows, (*[slice(None)] * node.dim, places), node.shape),)


@batching(unfold)
def _unfold_batched(level: Batch, f: Any, x: Tensor, dimension: int, size: int, step: int) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalize_dim(dimension, x.ndim) + 1, size, step))


METHODS = (stride, dim_order, storage_offset, data_ptr, is_set_to, as_strided, as_strided_,
           as_strided_scatter, unfold)  # fmt: skip
FUNCTIONS = (as_strided, as_strided_, as_strided_scatter)
