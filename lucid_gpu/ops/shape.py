"""Views and reshapes, joining and splitting.

A view shares its tensor's memory and version; its gradient is a view or a placement of the
cotangent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar, cast

from lucid_gpu import dtypes as dt
from lucid_gpu.core import layout, saved
from lucid_gpu.core.owner import SameMemory, Storage
from lucid_gpu.core.program import INFERENCE, SHARED, Shape, changed_load, load_program, marked
from lucid_gpu.core.value import Variable, load_as, order_of
from lucid_gpu.devices import backend, held, xp_of
from lucid_gpu.devices.copies import inverse, laid_in, reshaped, row_major, strided, write
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.kernels.concatenate import concatenate
from lucid_gpu.launch import Executor
from lucid_gpu.ops import in_place as in_place  # its methods belong to every tensor
from lucid_gpu.ops import mirrors
from lucid_gpu.ops import size as size
from lucid_gpu.ops.arguments import (
    as_ints,
    guarded,
    is_number,
    no_tensor,
    one_by_one,
    put_into,
    require_one_device,
    several,
)
from lucid_gpu.ops.laying import lay, lay_as
from lucid_gpu.ops.memory_formats import (
    channels_order,
    in_format,
    in_order,
    kept_order,
    lies_in,
    lying,
    moved,
    strides_of,
)
from lucid_gpu.ops.memory_formats import copied as copied_in_format
from lucid_gpu.ops.record import full_tangents, record
from lucid_gpu.ops.reductions import normalize_dim, normalize_dims, reshape_lazily, sum_to_shape
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.storage import contiguous_format
from lucid_gpu.tape import modes, watched
from lucid_gpu.tape.door import op, type_name
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.rules import Batch, Call, batching, jvp, on_value
from lucid_gpu.tensor import (
    Tensor,
    _apart,
    _mark_shared,
    _set,
    apply,
    follow_base,
    from_array,
    is_shown,
    show,
    store_written,
)

F = TypeVar("F", bound=Callable[..., Any])


def _view_of(
    input: Tensor,
    name: str,
    array: Any,
    vjp: Any,
    step: tuple[Any, ...],
    dtype: Any = None,
    bits: int | None = None,
    **attributes: Any,
) -> Tensor:
    """Record a view: ``array`` lies in the input's memory.

    Parameters
    ----------
    step : (function, arguments)
        Makes the view of any tensor of the input's shape.
    dtype : dtype, optional
        Of the view, where it is not the input's.
    bits : int, optional
        How the view shows the memory (`ops.mirrors.bits_of`), where that is not how the input does.
    """
    if input._wrapper is not None:
        level = input._wrapper.level
        if dtype is not None:
            attributes["dtype"] = dtype
        if bits is not None:
            attributes["bits"] = bits
        wrapped: Tensor = level.view(input, name, array, vjp, step, **attributes)
        return wrapped
    program = input._expr.program
    source = apart_in_inference(input) if program.marks & INFERENCE else input
    result: Tensor = record(
        name, array, (source,), vjp, (), dtype or program.dtype, False, not program.free,
        **attributes,
    )  # fmt: skip
    result = _share(input, result, step, bits)
    if input._creation is not None or not state.grad:
        note_creation(input, result)
    return result


view_of: Callable[..., Tensor] = _view_of if core is None else core.view_of


def apart_in_inference(input: Tensor) -> Tensor:
    """What a view is recorded of: views of what was made in inference mode have no history."""
    program = input._expr.program
    return input.detach() if program.marks & INFERENCE and program.needs_grad else input


def note_creation(input: Tensor, result: Tensor, several: bool = False) -> None:
    """Note why a view must not be written by a recorded op, if so.

    Where nothing is recorded it is a leaf that requires grad if its base does, and gets none.

    Parameters
    ----------
    several : bool
        Whether its op gives several views.
    """
    if input._creation == "inference":
        result._creation = "inference"
    elif not state.grad:
        result._creation = "inference" if state.off is modes.INFERENCE else "no_grad"
    elif several or input._creation is not None:
        result._creation = "multiple" if several else input._creation
    if state.grad or state.mode is modes.FORWARD or not input._expr.program.needs_grad:
        return  # None: `Function.forward` tells dependence by itself
    if result._base is not None and result.dtype.category >= 2:
        follow_base(result)


def _share(input: Tensor, result: Tensor, step: tuple[Any, ...], bits: int | None = None) -> Tensor:
    """Let a view know its base and its memory; the view, another tensor where it shows bits."""
    storage = input._storage or input._memory()
    shows = bits is not None or storage.mirror is not None
    if shows:
        result = mirrors.show(input, result, mirrors.bits_of(input) if bits is None else bits)
    else:
        result._storage = storage
    base, program = input._base, input._expr.program
    shown = result._expr.program
    if (program.marks ^ shown.marks) & INFERENCE:
        load_as(result, marked(shown, shown.marks ^ INFERENCE))
    if program.marks & INFERENCE:
        pass  # PyTorch tracks no views of these
    elif base is None:
        result._base = input
        result._steps = ((), step)
    else:
        result._base = base
        result._steps = (input._steps, step)
    if shows:
        return result
    leaf = result._expr.leaves[0]
    storage.add(result, leaf)
    leaf.variable = variable = Variable()
    variable._storage, leaf.version = storage, storage.version
    if leaf.version:
        result._since = leaf.version
    if program.marks & SHARED:
        _mark_shared(result)
    return result


def own(result: Any, *inputs: Any, copies: bool = True) -> Any:
    """A composition's result that PyTorch's op computes, where ours views what it made on the way.

    Parameters
    ----------
    result : Tensor or tuple of Tensor
    *inputs
        What the user gave, tensors among it: a view of one of them is copied.
    copies : bool
        Whether it is; else it stays a view, as `einsum` may give.
    """
    if type(result) is not Tensor:
        for part in result if isinstance(result, tuple) else ():
            own(part, *inputs, copies=False)
        return result
    base = result._base
    if base is None:
        return result
    if any(t is base or t._base is base for t in inputs if isinstance(t, Tensor)):
        return clone(result) if copies else result
    if result._wrapper is None:
        result._base, result._steps, result._creation = None, (), None
    return result


def owned(function: F) -> F:
    """Declare that no result of an op is a view; see `own`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return own(function(*args, **kwargs), *args, *kwargs.values())

    return cast(F, call)


def replay(tensor: Tensor, steps: Any) -> Tensor:
    """The view of a tensor that these steps make."""
    order = []
    while steps:
        steps, step = steps
        order.append(step)
    for function, arguments in reversed(order):
        tensor = function(tensor, *arguments)
    return tensor


def view_of_all(input: Tensor) -> Tensor:
    """A view in the same shape, not recorded; a pending value stays pending."""
    result = input.detach()
    if input._expr.program.marks & INFERENCE:
        return result  # PyTorch tracks no views of these
    result._base = input if input._base is None else input._base
    result._steps = (input._steps, (reshape, (tuple(input.shape),)))
    return result


def _base_array(input: Tensor) -> Any:
    """The array to take a view of: elements as they lie in memory, whatever bits show them."""
    storage = input._storage
    if storage is not None and storage.mirror is not None:
        input = storage.mirror.raw
    program = input._expr.program  # which reads it, where nobody has since it was written
    value = input._expr
    if not program.is_load or watched.by is not None:
        input._cell()
        value = input._expr
    cell = value.leaves[0]
    if type(value.program.free) is tuple and _in_order(input):
        cell = input._cell()
    if cell.borrowed:
        input._own_memory()
    return cell.array


base_array: Callable[[Tensor], Any] = _base_array if core is None else core.base_array


def _sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Shape arguments given one by one or as a sequence."""
    kind = type(shape[0]) if len(shape) == 1 else int
    if kind is tuple or (kind is not int and not is_number(shape[0])):
        if kind not in (tuple, list) and isinstance(shape[0], (str, Set, Mapping)):
            raise TypeError(f"sizes and dimensions must be ints, got {type_name(shape[0])}")
        shape = tuple(shape[0])
    for n in shape:
        if type(n) is not int:
            break
    else:
        return shape
    sizes = as_ints(shape)
    if sizes is None:
        raise TypeError(f"sizes and dimensions must be ints, got {shape}")
    return sizes


@functools.lru_cache(maxsize=1 << 12)
def _infer(own: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    count = math.prod(own)
    if -1 not in shape:
        if math.prod(shape) != count:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
        return shape
    if shape.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = -math.prod(shape)
    if known == 0 or count % known:
        if known == 0 and not count:
            raise RuntimeError(
                f"cannot reshape tensor of {count} elements into shape {list(shape)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            )
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    return tuple([count // known if n == -1 else n for n in shape])


def _reshape_vjp(node: Any, g: Tensor) -> Any:
    if is_shown(g):
        on_cpu = g._expr.program.device.type == "cpu"
        same = g.array.reshape(node.shape) if on_cpu else reshaped(g.array, node.shape)
        return (show(g, same),)
    return (reshape_lazily(g, node.shape),)


@jvp(_reshape_vjp)
def _reshape_jvp(call: Call) -> Any:
    return [reshape(call.tangent(), tuple(call.results[0].shape))]


@op
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape: a view where the layout allows it, else a copy.

    Parameters
    ----------
    sizes, or shape : ints or a sequence of ints
        One may be -1 and is inferred.

    Raises
    ------
    RuntimeError
        For another number of elements, and more than one -1.
    TypeError
        For sizes that are not integers.
    """
    sizes = sizes if shape is None else (shape,)
    if core is not None:
        result: Tensor | None = core.reshaped(input, sizes, reshape)
        if result is not None:
            return result
    return _in_shape(input, base_array(input), _sizes(sizes), may_copy=True)


def _in_shape(input: Tensor, array: Any, sizes: tuple[int, ...], may_copy: bool) -> Tensor:
    """What `reshape` gives of a tensor whose array is settled, or `view`, which may not copy."""
    own = input._expr.shape
    wanted = _infer(own, sizes)
    on_cpu = input._expr.program.device.type == "cpu"
    result = array.reshape(wanted) if on_cpu else reshaped(array, wanted)
    if not array.flags.c_contiguous and _copied(array, result, input):
        if (input._expr.program.free or not may_copy) and _in_order(input):
            return _in_shape(input, base_array(input), wanted, may_copy)  # PyTorch's is a view
        if not may_copy:
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one "
                "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
            )
        if mirrors.bits_of(input):
            result = reshaped(input.array, wanted)
        copied: Tensor = record(
            "UnsafeViewBackward0", result, (input,), _reshape_vjp, dtype=input.dtype, shape=own
        )
        return copied
    step = reshape, (wanted,)
    return view_of(input, "ViewBackward0", result, _reshape_vjp, step, shape=own)


@batching(reshape)
def _reshape_batched(level: Batch, f: Any, x: Tensor, *sizes: Any, shape: Any = None) -> Any:
    wanted = _infer(tuple(x.shape), _sizes(sizes if shape is None else (shape,)))
    return level.wrap(f(level.value(x), (level.size, *wanted)))


@op
def view(input: Tensor, *shape: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """As `reshape`, but never a copy; ``view(dtype)`` reads the same bytes as another type.

    Raises
    ------
    RuntimeError
        If the layout does not allow the shape.
    TypeError
        For sizes that are not integers.
    """
    if size is not None or dtype is not None:
        shape = (dtype if size is None else size,)
    if core is not None:
        result: Tensor | None = core.reshaped(input, shape, reshape)
        if result is not None:
            return result
    array = base_array(input)
    if len(shape) == 1 and isinstance(shape[0], dt.dtype):
        dt.as_dtype(shape[0])  # refuses what is a name only
        if shape[0] is not input.dtype:
            mirrors.refuse_bits(
                input, "lucid_gpu.Tensor.view is not supported for {} when converting to a "
                "different dtype.",
            )  # fmt: skip
        _check_bytes(input, array, shape[0])
        seen = array.view(shape[0].numpy) if array.size else _nothing_seen(input, shape[0])
        other = view_of(input.detach(), "ViewBackward0", seen, None, (view, shape), dtype=shape[0])
        other._base = None  # no history is shared
        return other
    return _in_shape(input, array, _sizes(shape), may_copy=False)


@batching(view)
def _view_batched(
    level: Batch, f: Any, x: Tensor, *shape: Any, size: Any = None, dtype: Any = None
) -> Any:
    if size is not None or dtype is not None:
        shape = (dtype if size is None else size,)
    if len(shape) == 1 and isinstance(shape[0], dt.dtype):
        return level.wrap(f(level.value(x), shape[0]))
    return _reshape_batched(level, f, x, *shape)


@op
def _alias(input: Tensor) -> Tensor:
    """A view in the same shape."""
    own = tuple(input.shape)
    return view_of(
        input, "AliasBackward0", base_array(input), _reshape_vjp, (reshape, (own,)), shape=own
    )


batching(_alias)(on_value)


def _copied(array: Any, reshaped: Any, input: Tensor) -> bool:
    """Whether a layout did not allow a shape, and the elements had to move."""
    if not array.size:
        return False
    address = backend(input._expr.program.device).address
    return address(array) != address(reshaped)


def _check_bytes(input: Tensor, array: Any, wanted: dt.dtype) -> None:
    """Refuse a view of elements of another size that the layout does not allow."""
    own, other = input.dtype.itemsize, wanted.itemsize
    if own == other:
        return
    why = f"to view {input.dtype.name} as {wanted.name} (different element sizes)"
    if not array.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 {why}")
    strides = [s // own for s in array.strides]
    if array.size and strides[-1] != 1 and array.shape[-1] > 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {why}, but got {strides[-1]}")
    if array.shape[-1] * own % other:
        raise RuntimeError(
            f"self.size(-1) must be divisible by {other // own} {why}, but got {array.shape[-1]}"
        )
    offset = input.storage_offset()
    if offset * own % other:
        raise RuntimeError(
            f"self.storage_offset() must be divisible by {other // own} {why}, but got {offset}"
        )
    for d, s in enumerate(strides[:-1] if array.size else ()):
        if s * own % other:
            raise RuntimeError(
                f"self.stride({d}) must be divisible by {other // own} {why}, but got {s}"
            )


def _nothing_seen(input: Tensor, wanted: dt.dtype) -> Any:
    """What an array without elements is as another type: its strides mean nothing."""
    *outer, last = (1, *input.shape)
    last = last * input.dtype.itemsize // wanted.itemsize
    return xp_of(input).empty((*outer, last)[1:], wanted.numpy)


@op
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions ``start_dim`` to ``end_dim`` joined into one: ``(a, b, c)`` to ``(a, b * c)``.

    RuntimeError where ``end_dim`` comes first; IndexError for a dimension that there is not.
    """
    rank = input.ndim
    a, b = normalize_dim(start_dim, rank), normalize_dim(end_dim, rank)
    if not rank:
        return reshape(input, 1)
    if a > b:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if a == b:
        return input
    shape = tuple(input.shape)
    return reshape(input, (*shape[:a], math.prod(shape[a : b + 1]), *shape[b + 1 :]))


@op
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension split into several, as a view: ``(a, b * c)`` to ``(a, b, c)``.

    RuntimeError if the sizes' product is not the dimension's size; TypeError for sizes that are no
    ints; IndexError for a ``dim`` that there is not.
    """
    dim, inner = normalize_dim(dim, input.ndim), _sizes((sizes,))
    if not inner:
        raise RuntimeError("unflatten: sizes must be non-empty")
    shape, known = tuple(input.shape), abs(math.prod(inner))
    fits = known == shape[dim] if -1 not in inner else known and shape[dim] % known == 0
    if not fits and inner.count(-1) < 2 and (known or shape[dim]):
        raise RuntimeError(
            f"unflatten: Provided sizes {list(inner)} don't multiply up to the size of dim {dim} "
            f"({shape[dim]}) in the input tensor"
        )
    inner = _infer((shape[dim],), inner)
    return reshape(input, (*shape[:dim], *inner, *shape[dim + 1 :]))


@op
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """A view without dimensions of extent 1, all or the given ones: ``(a, 1, b)`` to ``(a, b)``.

    IndexError for a dimension that there is not; RuntimeError for one given twice.
    """
    squeezed = _squeezed if dim is None or type(dim) is int else _squeezed.__wrapped__
    return reshape(input, squeezed(input._expr.shape, dim))


@functools.lru_cache(maxsize=1 << 10)
def _squeezed(shape: Shape, dim: Any) -> Shape:
    dims = () if dim in ((), []) else normalize_dims(dim, len(shape))
    return tuple([n for i, n in enumerate(shape) if n != 1 or i not in dims])


@op
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a new dimension of extent 1 at ``dim``: ``(a, b)`` to ``(a, 1, b)``.

    IndexError for a ``dim`` that the result does not have.
    """
    shape = input._expr.shape
    dim = normalize_dim(dim, len(shape) + 1)
    # an index would give it the stride 0
    array = base_array(input).reshape((*shape[:dim], 1, *shape[dim:]))
    step = unsqueeze, (dim,)
    return view_of(input, "UnsqueezeBackward0", array, _reshape_vjp, step, shape=shape)


@batching(unsqueeze)
def _unsqueeze_batched(level: Batch, f: Any, x: Tensor, dim: int) -> Any:
    return level.wrap(f(level.value(x), normalize_dim(dim, x.ndim + 1) + 1))


@op
def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Dimensions in another order, as a view: of shape ``(x.shape[d] for d in dims)``.

    RuntimeError if ``dims`` does not name each dimension once; TypeError for non-integers;
    IndexError for a dimension that there is not.
    """
    order = _order(_sizes(order if dims is None else (dims,)), len(input._expr.shape))
    array = base_array(input).transpose(order)
    back, step = inverse(order), (permute, order)
    view = view_of(input, "PermuteBackward0", array, _permute_vjp, step, inverse=back)
    if input._expr.program.free is True and view._wrapper is None:
        lay_as(view, back)  # of what is row-major in PyTorch
    return view


@functools.lru_cache(maxsize=1 << 10)
def _order(dims: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """All dimensions as numbers from 0, each once."""
    if len(dims) != rank:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = "
            f"{len(dims)}"
        )
    order = tuple([normalize_dim(d, rank) for d in dims])
    if len(set(order)) != rank:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return order


def _permute_vjp(node: Any, g: Tensor) -> Any:
    if is_shown(g):
        return (show(g, g.array.transpose(node.inverse)),)
    return (permute(g, node.inverse),)


@batching(permute)
def _permute_batched(level: Batch, f: Any, x: Tensor, *order: Any, dims: Any = None) -> Any:
    order = _order(_sizes(order if dims is None else (dims,)), x.ndim)
    return level.wrap(f(level.value(x), (0, *[d + 1 for d in order])))


@op
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged, as a view: ``(a, b, c)`` to ``(c, b, a)`` for 0 and 2.

    IndexError for a dimension that there is not.
    """
    if input._is_sparse:
        return input.transpose(dim0, dim1)
    rank = len(input._expr.shape)
    a = dim0 if type(dim0) is int and 0 <= dim0 < rank else normalize_dim(dim0, rank)
    b = dim1 if type(dim1) is int and 0 <= dim1 < rank else normalize_dim(dim1, rank)
    array = base_array(input)
    if rank:
        array = array.swapaxes(a, b)
    step = transpose, (a, b)
    view = view_of(input, "TransposeBackward0", array, _transpose_vjp, step, dims=(a, b))
    if input._expr.program.free is True and view._wrapper is None:
        order = [*range(rank)]
        order[a], order[b] = b, a
        lay_as(view, tuple(order))
    return view


def _transpose_vjp(node: Any, g: Tensor) -> Any:
    if is_shown(g) and g._expr.shape:
        return (show(g, g.array.swapaxes(*node.dims)),)
    return (transpose(g, *node.dims),)


@batching(transpose)
def _transpose_batched(level: Batch, f: Any, x: Tensor, dim0: int, dim1: int) -> Any:
    a, b = normalize_dim(dim0, x.ndim), normalize_dim(dim1, x.ndim)
    return level.wrap(f(level.value(x), a + 1, b + 1)) if x.ndim else level.alias(x)


@op
def t(input: Tensor) -> Tensor:
    """A matrix transposed; vectors and numbers as they are.

    RuntimeError for more than two dimensions.
    """
    if input._is_sparse:
        return input.t()
    rank = len(input._expr.shape)
    if rank > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return transpose(input, 0, 1) if rank == 2 else view_as(input, input)


@op
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other places, the rest in order, as a view.

    RuntimeError for a dimension given twice, and two different numbers of them; IndexError for a
    dimension that there is not.

    ``movedim(x, 0, 2)`` of the shape ``(a, b, c)`` has ``(b, c, a)``.
    """
    rank = input.ndim
    froms = (source,) if is_number(source) else tuple(source)
    tos = (destination,) if is_number(destination) else tuple(destination)
    sources = tuple([normalize_dim(d, rank) for d in froms])
    targets = tuple([normalize_dim(d, rank) for d in tos])
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(froms)} dims) should "
            f"contain the same number of dims as destination ({list(tos)} dims)"
        )
    for name, dims, named in (("source", sources, froms), ("destination", targets, tos)):
        if len({*dims}) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(named)})")
    if not rank:
        return permute(input, ())
    order = [d for d in range(rank) if d not in sources]
    for target, source_dim in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source_dim)
    return permute(input, order)


@op
def expand(input: Tensor, *shape: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Broadcast to a larger shape without a copy; -1 keeps an extent.

    RuntimeError for a shape that the tensor does not broadcast to; TypeError for sizes that are no
    integers.
    """
    wanted, own = _sizes(shape if size is None else (size,)), input._expr.shape
    array = base_array(input)
    full, strides = _expanded(wanted, own, array.strides)
    array = strided(array, full, strides)
    return view_of(input, "ExpandBackward0", array, _expand_vjp, (expand, full), shape=own)


@functools.lru_cache(maxsize=1 << 10)
def _expanded(wanted: Shape, own: Shape, steps: Shape) -> tuple[Shape, Shape]:
    """The shape that a tensor is expanded to, and the steps of its array then."""
    extra = len(wanted) - len(own)
    if extra < 0:
        raise RuntimeError(
            f"expand(tensor{list(own)}, size={list(wanted)}): the number of sizes provided "
            f"({len(wanted)}) must be greater or equal to the number of dimensions in the tensor "
            f"({len(own)})"
        )
    full = tuple([own[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(wanted)])
    for i, n in enumerate(full):
        if n < 0 and (i < extra or own[i - extra] == 1):
            where = f" in a leading, non-existing dimension {i}" if i < extra else ""
            raise RuntimeError(f"The expanded size of the tensor ({n}) isn't allowed{where}")
    for i, n in enumerate(own):
        if n not in (1, full[i + extra]):
            raise RuntimeError(
                f"The expanded size of the tensor ({full[i + extra]}) must match the existing size "
                f"({n}) at non-singleton dimension {i + extra}. Target sizes: {list(full)}. Tensor "
                f"sizes: {list(own)}"
            )
    pairs = zip((0,) * extra + steps, (0,) * extra + own, full, strict=True)
    return full, tuple([step if n == m else 0 for step, n, m in pairs])


def _expand_vjp(node: Any, g: Tensor) -> Any:
    return (sum_to_shape(g, node.shape),)


@batching(expand)
def _expand_batched(
    level: Batch, f: Any, x: Tensor, *shape: Any, size: Any = None, implicit: bool = False
) -> Any:
    wanted, own = _sizes(shape if size is None else (size,)), tuple(x.shape)
    missing = len(wanted) - len(own)
    if missing < 0:
        return NotImplemented
    filled = [own[i - missing] if n == -1 and i >= missing else n for i, n in enumerate(wanted)]
    return level.wrap(f(level.aligned(x, len(wanted)), (level.size, *filled)))


@op
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """`expand` under NumPy's name."""
    return expand(input, size)


@op
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Broadcast to another tensor's shape."""
    return expand(input, tuple(other.shape))


@op
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """A view in another tensor's shape."""
    return view(input, tuple(other.shape))


@op
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`reshape` to another tensor's shape."""
    return reshape(input, tuple(other.shape))


@op
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The elements in row-major (or the given) order: the tensor itself, or a copy."""
    if memory_format is not None:
        return in_format(input, memory_format)
    return input if is_contiguous(input) else in_order(input, None)


batching(contiguous)(on_value)


@op
def is_contiguous(input: Tensor, memory_format: Any = None) -> bool:
    """Whether the elements are in row-major order in memory, or in ``memory_format``'s."""
    if memory_format is not None and memory_format.order is not None:
        return lies_in(input, memory_format)
    input = mirrors.in_memory(input)
    program = input._expr.program
    if not program.is_load:
        return order_of(input._expr) is None
    if type(program.free) is tuple:
        strides = strides_of(input)
        if not layout.lies_in(input._expr.shape, strides, range(len(strides))):
            return False
    if program.free and _in_order(input):
        program = input._expr.program
    return not program.strided


@batching(is_contiguous)
def _is_contiguous_batched(level: Batch, f: Any, x: Tensor, memory_format: Any = None) -> Any:
    if memory_format is not None:
        return NotImplemented
    return f(level.value(x)) or layout.lies_in(tuple(x.shape), x.stride(), range(x.ndim))


def array_in_order(input: Tensor) -> Any:
    """The array to take a view of by strides or addresses, which are PyTorch's."""
    array = base_array(input)
    if input._expr.program.free and _in_order(input):
        return base_array(input)
    return array


def _in_order(input: Tensor) -> bool:
    """Bring a result that we laid out in another order into the order that PyTorch's has.

    Views of it are made anew. False where the order is the user's, and where memory is lent.
    """
    root, storage = input, input._storage
    if input._base is not None and storage is not None:
        root = next((t for t in storage.others(input) if t is input._base), input)
    program = root._expr.program
    if not program.free or root._base is not None or input._is_sparse:
        return False
    cell = root._cell()
    others = [] if storage is None else storage.others(root)
    if any(not _follows(t, root) for t in others):
        return False
    if storage is not None and (storage.is_lent() or (others and storage.mirrors)):
        return False
    if held.by and held.is_held(cell.array):
        return False
    order = program.free
    array = row_major(cell.array) if order is True else laid_in(cell.array, order)
    alone = from_array(array, program.dtype, program.device)._keep_order()
    for other in others:
        if other._base is root:
            with no_grad():
                view = replay(alone, other._steps)
            moved(other, base_array(view))
        else:
            moved(other, array)
    moved(root, array)
    return True


def _follows(other: Tensor, root: Tensor) -> bool:
    """Whether a tensor on the memory of a result can be made again where that is moved."""
    if mirrors.is_batched(other) or not other._expr.program.is_load:
        return False
    if other._base is root:
        return True
    ours, theirs = root._expr.leaves[0].array, other._expr.leaves[0].array
    return other._base is None and ours.strides == theirs.strides and ours.shape == theirs.shape


@op
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy of the elements in memory of its own, through which gradients flow."""
    if memory_format is not None:
        return copied_in_format(input, memory_format)
    if input._is_sparse:
        return input.clone()
    if not input._expr.program.is_load:  # its bytes do not exist yet: a copy costs nothing
        return apply(TABLE["identity"], input, shape=tuple(input.shape))
    return in_order(input, kept_order(input))


# --- joining --------------------------------------------------------------------------------------


@op(autocast="promote")
def cat(tensors: Sequence[Tensor], dim: Any = 0, *, out: Any = None) -> Tensor:
    """Tensors joined along a dimension they may differ in.

    RuntimeError for 0-d tensors, and shapes that differ elsewhere; TypeError for non-tensors;
    ValueError without tensors; IndexError for a ``dim`` that there is not.
    """
    if out is not None:
        return put_into(cat(tensors, dim), out, "cat")
    tensors = several("cat", tensors)
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise no_tensor(i, t)
        if not t._expr.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    require_one_device("cat", *tensors)
    a = next((s for t in tensors if (s := t._expr.shape) != (0,)), None)
    if a is None:  # any dimension will do, as in PyTorch
        a, dim = (0,), 0
    dim = normalize_dim(dim, len(a))
    common = tensors[0]._expr.program.dtype
    for i, t in enumerate(tensors):
        b, d = t._expr.shape, t._expr.program.dtype
        if b == (0,):  # beside any shape
            b = *a[:dim], 0, *a[dim + 1 :]
            tensors[i] = reshape(t, b)
        if d is not common:
            common = dt.promote_types(common, d)
        if len(a) != len(b):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(a)} and {len(b)}"
            )
        if a[:dim] + a[dim + 1 :] != b[:dim] + b[dim + 1 :]:
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {dim}. Expected shape like "
                f"{list(a)} but got {list(b)} for tensor number {i} in the list."
            )
    kept = [t if t._expr.program.dtype is common else t.to(common) for t in tensors]
    arrays = [t.array for t in kept]
    order = _common_order(kept)
    where = kept[0]._expr.program.device
    if where.type == "cuda" or Executor.host_cuda:
        array = concatenate(arrays, dim, order, where)
    else:  # NumPy keeps a common order
        array = backend(where).xp.concatenate(arrays, axis=dim)
    sizes = [t.shape[dim] for t in arrays]
    result: Tensor = record(
        "CatBackward0", array, kept, _cat_vjp, dtype=common, sizes=sizes, dim=dim
    )
    return lay(result, order)


def _common_order(tensors: Sequence[Tensor]) -> tuple[int, ...] | None:
    """Channels last where all tensors lie so."""
    order = channels_order(tensors[0])
    if order is not None and any(channels_order(t) is None for t in tensors):
        return None
    return order


def _cat_vjp(node: Any, g: Tensor) -> Any:
    parts, start = [], 0
    for needed, n in zip(node.needs_input_grad, node.sizes, strict=True):
        parts.append(g.narrow(node.dim, start, n) if needed else None)
        start += n
    return parts


@jvp(_cat_vjp)
def _cat_jvp(call: Call) -> Any:
    return [cat(full_tangents(call), call.attributes["dim"])]


@batching(cat)
def _cat_batched(
    level: Batch, f: Any, tensors: Any, dim: int = 0, *, axis: Any = None, out: Any = None
) -> Any:
    if axis is not None or out is not None:
        return NotImplemented
    kept = [t for t in tensors if tuple(t.shape) != (0,)] or list(tensors)[:1]
    joined_dim = normalize_dim(dim, kept[0].ndim)
    return level.wrap(f([level.full(t) for t in kept], joined_dim + 1))


@op(autocast="promote")
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Any = None) -> Tensor:
    """Tensors of one shape joined along a new dimension.

    RuntimeError for shapes that differ, and without tensors; IndexError for a ``dim`` that the
    result does not have.
    """
    if out is not None:
        return put_into(stack(tensors, dim), out, "stack")
    tensors = several("stack", tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise no_tensor(i, t)
        if t._expr.shape != tensors[0]._expr.shape:
            raise RuntimeError(
                "stack expects each tensor to be equal size, but got "
                f"{list(tensors[0].shape)} at entry 0 and {list(t.shape)} at entry {i}"
            )
    dim = normalize_dim(dim, len(tensors[0]._expr.shape) + 1)
    types = {t._expr.program.dtype for t in tensors}
    if open_levels or len(types) > 1:
        return cat([unsqueeze(t, dim) for t in tensors], dim)
    require_one_device("stack", *tensors)
    index = (slice(None),) * dim + (None,)
    arrays = [t.array[index] for t in tensors]
    order = _common_order(tensors)
    if order is not None:  # each pair of the new dimension and its next is one of `cat`'s
        wide = [(d, d + 1) if d == dim else (d + (d > dim),) for d in order]
        order = None if dim == len(order) else tuple([d for pair in wide for d in pair])
    where = tensors[0]._expr.program.device
    if where.type == "cuda" or Executor.host_cuda:
        array = concatenate(arrays, dim, order, where)
    else:
        array = backend(where).xp.concatenate(arrays, axis=dim)
    result: Tensor = record(
        "StackBackward0", array, tensors, _stack_vjp, dtype=types.pop(), dim=dim
    )
    return lay(result, order)


def _stack_vjp(node: Any, g: Tensor) -> Any:
    lead = (slice(None),) * node.dim
    return [g[lead + (i,)] if needed else None for i, needed in enumerate(node.needs_input_grad)]


@op
@owned
def repeat(input: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """The tensor laid side by side ``sizes`` times: of shape ``(sizes[d] * x.shape[d] for d)``.

    RuntimeError for fewer sizes than dimensions, and negative ones; TypeError for sizes that are
    not integers.
    """
    times = _sizes(sizes if repeats is None else (repeats,))
    own = tuple(input.shape)
    if len(times) < len(own):
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: got {list(times)} for shape {list(own)}"
        )
    own = (1,) * (len(times) - len(own)) + own
    whole = [a * b for a, b in zip(times, own, strict=True)]
    for extent in whole:
        if extent < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {extent}: {whole}")
    wide = [n for pair in zip(times, own, strict=True) for n in pair]
    thin = [n for extent in own for n in (1, extent)]
    spread = expand(reshape(input, thin), wide)
    copied = clone(spread, memory_format=contiguous_format)
    return reshape(copied, whole)


@op
@owned
def tile(input: Tensor, *counts: Any, dims: Any = None) -> Tensor:
    """As `repeat`, of the same shape, with missing leading counts taken as 1.

    TypeError for sizes that are not integers.
    """
    times = _sizes(counts if dims is None else (dims,))
    return repeat(input, (1,) * max(input.ndim - len(times), 0) + times)


@op
@lying("input")
def flip(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Dimensions in reverse order, as a copy of the same shape.

    RuntimeError for a dimension given twice; TypeError for anything but an integer.
    """
    if dims is None and not order:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    wanted = _sizes(order if dims is None else (dims,))
    axes = normalize_dims(wanted, input.ndim) if wanted else ()
    axes = axes if input.ndim else ()  # of a 0-d tensor -1 and 0 are named, and nothing moves
    array = xp_of(input).flip(input.array, axes).copy("K")  # also where no element moves
    result: Tensor = record(
        "FlipBackward0", array, (input,), _flip_vjp, dtype=input.dtype, dims=axes
    )
    return result


def _flip_vjp(node: Any, g: Tensor) -> Any:
    return (flip(g, node.dims),)


@jvp(_flip_vjp)
def _flip_jvp(call: Call) -> Any:
    return [flip(call.tangent(), call.attributes["dims"])]


@batching(flip)
def _flip_batched(level: Batch, f: Any, x: Tensor, *order: Any, dims: Any = None) -> Any:
    if dims is None and not order:
        return NotImplemented
    wanted = _sizes(order if dims is None else (dims,))
    axes = normalize_dims(wanted, x.ndim) if wanted and x.ndim else ()
    return level.wrap(f(level.value(x), [d + 1 for d in axes]))


def _m_t(self: Tensor) -> Tensor:
    """The last two dimensions exchanged, as a view of matrices; RuntimeError for fewer than two."""
    rank = len(self._expr.shape)
    if rank < 2:
        if not rank:
            warn_user(
                "Tensor.mT is deprecated on 0-D tensors. This function is the identity in these "
                "cases."
            )
            return self
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {rank}-D tensor."
        )
    return transpose(self, -2, -1)


def _big_t(self: Tensor) -> Tensor:
    """All dimensions in reverse order, as a view: ``(a, b, c)`` to ``(c, b, a)``."""
    return permute(self, tuple(range(len(self._expr.shape)))[::-1])


def _m_h(self: Tensor) -> Tensor:
    """Matrices transposed and conjugated, ``(..., m, n)``; RuntimeError for fewer dimensions."""
    if self.ndim == 1:
        raise RuntimeError(
            "tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    turned: Tensor = (_m_t(self) if self.ndim else self).conj()
    return turned


def _big_h(self: Tensor) -> Tensor:
    """A matrix transposed and conjugated; RuntimeError for another number of dimensions, but 0."""
    if self.ndim not in (0, 2):
        raise RuntimeError(
            "tensor.H is only supported on matrices (2-D tensors). Got "
            f"{self.ndim}-D tensor. For batches of matrices, consider using tensor.mH"
        )
    turned: Tensor = (self.t() if self.ndim else self).conj()
    return turned


def _transposed(self: Tensor, *dims: Any, **named: Any) -> Tensor:
    """See `lucid_gpu.transpose`; none, a tuple or more dimensions are NumPy's order of all."""
    if len(dims) == 2 or named or len(dims) == 1 and not hasattr(dims[0], "__iter__"):
        return transpose(self, *dims, **named)
    return permute(self, *dims) if dims else _big_t(self)


# its dimensions need not be numbers, so the annotations are its own
@functools.wraps(transpose, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
def _transposed_function(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    if len(dims) == 1 and isinstance(dims[0], (tuple, list)):  # NumPy's order of all dimensions
        return permute(input, dims[0])
    return transpose(input, *dims, **named)


METHODS = (reshape, view, flatten, unflatten, squeeze, unsqueeze, permute, transpose, t, movedim,
           expand, broadcast_to, expand_as, view_as, reshape_as, contiguous, is_contiguous, clone,
           repeat, tile, flip)  # fmt: skip
attach(Tensor, *METHODS, _alias)
_set("squeeze", guarded(one_by_one(squeeze)))  # x.squeeze(axis=0) too
_set("unsqueeze", guarded(unsqueeze))
_set("transpose", _transposed)
_set("broadcast_to", guarded(one_by_one(broadcast_to)))
attach(Tensor, mT=property(_m_t), T=property(_big_t), mH=property(_m_h), H=property(_big_h))
_METHODS_ONLY = (view, expand, expand_as, view_as, reshape_as, contiguous, is_contiguous, repeat)
_functions = [f for f in METHODS if f not in (*_METHODS_ONLY, transpose)]
FUNCTIONS = (*_functions, _transposed_function, cat, stack)

if core is not None:
    core.bind(
        storage=Storage,
        same_memory=SameMemory,
        held=held.by,
        load_program=load_program,
        without_grad=functools.partial(changed_load, needs_grad=False),
        taken=saved.taken,
        put=write,
        store_written=store_written,
        copy_readers=in_place.copy_for_readers,
        base_array=_base_array,
        view_of=_view_of,
        before_write=in_place._before_write,
        follow_base=follow_base,
        detached=_apart,
        read_anew=in_place.read_anew,
    )
