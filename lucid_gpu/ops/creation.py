"""Making tensors."""

from __future__ import annotations

import functools
import math
import operator
import reprlib
import sys
from collections.abc import Sequence
from types import MethodType
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend, backend_of_array, resolve
from lucid_gpu.devices.determinism import unwritten
from lucid_gpu.dtypes import as_dtype, dtype, get_default_dtype
from lucid_gpu.fusion.scheduler import begin_step
from lucid_gpu.ops.arguments import extents, into, shape_for, type_for
from lucid_gpu.ops.borrowed import from_array_shared
from lucid_gpu.ops.memory_formats import in_format, like
from lucid_gpu.ops.number_ranges import number_in
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.storage import strided
from lucid_gpu.tape.door import op, type_name
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, _set, from_array


def _finish(
    array: Any, d: dtype, where: device, requires_grad: bool, options: Any = None
) -> Tensor:
    result = from_array(array, d, where)
    if options:
        result = _with_options(result, **options)
    return result._mark() if requires_grad else result


def _with_options(
    made: Tensor,
    *,
    layout: Any = strided,
    pin_memory: bool | None = False,
    memory_format: Any = None,
    out: Tensor | None = None,
    **unknown: Any,
) -> Tensor:
    """What constructors take for PyTorch's sake besides: see `zeros`."""
    if unknown:
        raise TypeError(
            f"got an unexpected keyword argument {next(iter(unknown))!r}; dtype, device, "
            "requires_grad, layout, pin_memory, memory_format and out are taken"
        )
    if layout not in (strided, None):
        raise NotImplementedError(f"tensors are made dense, got layout={layout}; see .to_sparse()")
    if memory_format is not None and memory_format.order is not None:
        made = in_format(made, memory_format)
    if pin_memory:
        made = made.pin_memory()
    if out is None:
        return made
    return into(made.to(out.dtype), out, "out", made=True)


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with a copy of ``data``, of its shape: numbers, nested sequences, arrays or tensors.

    Parameters
    ----------
    dtype : dtype, optional
        By default int64 for integers, the default floating point type for floats, and an array's
        own type.

    Raises
    ------
    ValueError
        For ragged sequences.
    TypeError
        For data that are not numeric.
    """
    if isinstance(data, Tensor):
        warn_user(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), "
            "rather than torch.tensor(sourceTensor)."
        )
        result = data.detach().clone()
        result = result.to(dtype=dtype, device=device)
        result = result.pin_memory() if pin_memory else result
        return result._mark() if requires_grad else result
    if isinstance(seen := getattr(data, "_as_tensor", None), MethodType):  # a storage
        copy = seen(as_dtype(dtype) if dtype else None).detach().clone().to(device=device)
        return copy._mark() if requires_grad else copy
    if (other := _of_other_library(data)) is not None:
        converted = other.to(dtype=dtype, device=device)
        return tensor(converted, requires_grad=requires_grad, pin_memory=pin_memory)
    array_backend = backend_of_array(data)
    if isinstance(data, np.ndarray):
        dt.require_native(data.dtype)
    where = (
        resolve(device)
        if array_backend is None or device is not None
        else array_backend.device_of(data)
    )
    source = data if array_backend is not None else _to_array(data)
    if source.size > 1:  # data, and no number inside an expression
        begin_step()
    d = as_dtype(dtype) if dtype is not None else _natural_type(data, source)
    if source.dtype == object:
        source = _of_huge(source, d)
    if d.category == 1 and source.dtype.kind in "iuf" and array_backend is None:
        _refuse_overflow(source, d)
    elif d.category in (1, 2) and source.dtype.kind == "c" and array_backend is None:
        raise TypeError(f"must be real number, not complex, for a tensor of {d.name}")
    array = backend(where).asarray(source, d, where)
    return _finish(array, d, where, requires_grad, {"pin_memory": True} if pin_memory else None)


def _refuse_overflow(numbers: Any, d: dtype) -> None:
    """Refuse Python's numbers that a whole type does not hold; arrays are cast, as by PyTorch."""
    if numbers.dtype == np.uint64:
        raise _too_large(numbers.max())
    if numbers.dtype != d.numpy and numbers.size:
        for extreme in (numbers.min(), numbers.max()):
            number_in(extreme.item(), d)


def _is_nested(data: Any) -> bool:
    return isinstance(data, (list, tuple)) or (isinstance(data, np.ndarray) and data.ndim > 0)


def _lengths(data: Any) -> list[int]:
    """The shape that the first elements of nested sequences have."""
    lengths = []
    while _is_nested(data):
        lengths.append(len(data))
        data = data[0] if len(data) else None
    return lengths


def _misfit(data: Any, lengths: Sequence[int], dim: int = 0) -> Exception | None:
    """What is wrong with the first part of nested sequences that is no part of that shape."""
    nested = _is_nested(data)
    if dim == len(lengths):
        kind = type(data).__name__
        return TypeError(f"expected a number at dim {dim}, got a {kind}") if nested else None
    if not nested:
        return TypeError(f"not a sequence: expected {lengths[dim]} elements at dim {dim}")
    if len(data) != lengths[dim]:
        return ValueError(
            f"expected sequence of length {lengths[dim]} at dim {dim} (got {len(data)})"
        )
    return next(filter(None, (_misfit(part, lengths, dim + 1) for part in data)), None)


def _to_array(data: Any) -> Any:
    data = _plain(data)
    try:
        array = np.array(data)
    except ValueError as error:
        raise _misfit(data, _lengths(data)) or ValueError(
            f"expected sequences of equal length at each depth to make a tensor: {error}"
        ) from None
    if array.dtype.kind in "OSUVT" and array.dtype.name != "bfloat16":
        if array.dtype == object and _are_numbers(array):
            return array
        hint = dt.instead_of(array.dtype) if _gives_arrays(data) else ""
        kind = {"U": "str", "S": "bytes"}.get(array.dtype.kind, array.dtype)
        raise TypeError(
            f"new(): invalid data type '{kind}': can't make a tensor of {type(data).__name__}: "
            f"expected numbers, got elements of type {array.dtype}{hint}"
        )
    return array


def _are_numbers(array: Any) -> bool:
    """Whether all of Python's objects are numbers; RuntimeError for those that are no text."""
    strange = [x for x in array.flat if not isinstance(x, (int, float, complex))]
    if strange and not isinstance(strange[0], (str, bytes)):
        raise RuntimeError(
            f"Could not infer dtype of {type(strange[0]).__name__}: expected numbers, nested lists "
            f"of them, or arrays, got {reprlib.repr(strange[0])}"
        )
    return not strange


def _of_huge(numbers: Any, d: dtype) -> Any:
    """Numbers of which no type of NumPy's integers holds all, as elements of another type."""
    if d.category == 1:
        raise _too_large(max((x for x in numbers.flat if isinstance(x, int)), key=abs))
    return numbers.astype(bool if d.category == 0 else complex if d.category == 3 else float)


def _too_large(number: Any) -> ValueError:
    return ValueError(
        "Overflow when unpacking long long: expected numbers that int64 holds, got "
        f"{number}; a float loses digits"
    )


def _of_other_library(data: Any) -> Tensor | None:
    """A tensor on the memory of another library's array; None for numbers, sequences and ours."""
    if type(data) in _NO_ARRAYS or backend_of_array(data) is not None:
        return None
    if isinstance(data, np.ndarray):
        if isinstance(data, np.ma.MaskedArray):
            raise TypeError(
                "can't make a tensor of a masked array, whose mask it would lose: fill it, "
                "array.filled(0), or take what is not masked, array.compressed()"
            )
        return from_array_shared(data.view(np.ndarray))
    if hasattr(data, "__dlpack__") or type(data).__name__ == "PyCapsule":
        from lucid_gpu.ops.dlpack import from_dlpack

        return from_dlpack(data)
    if hasattr(data, "__cuda_array_interface__"):
        return from_array_shared(backend(resolve("cuda")).xp.asarray(data))
    return None


def _gives_arrays(data: Any) -> bool:
    """Whether this is a table, an image ...: its elements have a type of their own."""
    return hasattr(data, "__array__") or hasattr(data, "__array_interface__")


_NO_ARRAYS = frozenset((list, tuple, bool, int, float, complex))


def _plain(data: Any, depth: int = 0) -> Any:
    """Nested sequences with tensors of one element in them as plain numbers."""
    if depth > 128:
        raise TypeError("new(): self-referential lists are incompatible")
    if isinstance(data, Tensor):
        if data.numel() == 1:
            return data.item()
        hint = f"got one of shape {list(data.shape)}; lucid_gpu.stack joins tensors"
        if data.dtype.category < 2:
            raise TypeError(
                f"only integer tensors of a single element can be converted to an index, {hint}"
            )
        raise ValueError(f"only one element tensors can be converted to Python scalars, {hint}")
    if isinstance(data, (list, tuple)) and not _PYTHONS.issuperset(map(type, data)):
        return [_plain(item, depth + 1) for item in data]
    return data


def _natural_type(data: Any, array: Any) -> dtype:
    if array is data or _gives_arrays(data):
        return dt.from_numpy_dtype(array.dtype)
    kinds = _kinds_in(data)
    if array.dtype == object:
        present = [kind for kind in (complex, float) if kind in kinds]
        return dt.scalar_type(present[0]()) if present else dt.int64
    if not kinds <= _PYTHONS and any(isinstance(kind, (np.dtype, dtype)) for kind in kinds):
        types = [_type_of_kind(kind) for kind in kinds]
        return functools.reduce(dt.promote_types, [t for t in types if t is not None])
    if array.dtype.kind == "f":
        return get_default_dtype()
    if array.dtype.kind == "c":
        return dt.scalar_type(1j)
    if array.dtype.kind in "iu" or not array.size:
        return dt.int64 if array.size else get_default_dtype()
    return dt.from_numpy_dtype(array.dtype)


def _kinds_in(data: Any) -> set[Any]:
    """What stands in nested sequences: types of Python's numbers, types of arrays."""
    if isinstance(data, (list, tuple)):
        kinds = set(map(type, data))
        if kinds <= _PYTHONS:
            return kinds
        return set[Any]().union(*map(_kinds_in, data))
    return {data.dtype} if isinstance(data, (np.generic, np.ndarray, Tensor)) else {type(data)}


def _type_of_kind(kind: Any) -> dtype | None:
    if isinstance(kind, dtype):
        return kind
    if not isinstance(kind, np.dtype):
        return dt.scalar_type(kind()) if kind in _PYTHONS else None
    return dt.int64 if kind.kind == "u" and kind.itemsize > 1 else dt.from_numpy_dtype(kind)


_PYTHONS = frozenset((bool, int, float, complex))


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """As `tensor`, of the data's shape, but without a copy where type and device allow it.

    Arrays share their memory.
    """
    if isinstance(data, Tensor):
        return data.to(dtype=dtype, device=device)
    view = None if isinstance(data, np.generic) else shared(data)
    if view is None:
        return tensor(data, dtype=dtype, device=device)
    return view.to(dtype=dtype, device=device)


def shared(data: Any) -> Tensor | None:
    """A tensor on an array's memory, or what is one; None where it has to be copied."""
    if isinstance(data, Tensor):
        return data
    if backend_of_array(data) is not None:
        return from_array_shared(data)
    return _of_other_library(data)


def from_numpy(array: Any) -> Tensor:
    """A CPU tensor that shares memory with a NumPy array.

    A tensor on the CPU is returned as it is: NumPy's functions of tensors give tensors.

    Raises
    ------
    TypeError
        For anything else, and for element types without a tensor type.
    """
    if isinstance(array, Tensor) and array.device.type == "cpu":
        return array
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type_name(array)})")
    view = shared(array)
    assert view is not None
    return view


def _named_size(name: str, options: dict[str, Any]) -> tuple[Any]:
    if "size" not in options:
        raise TypeError(
            f'{name}() missing 1 required positional arguments: "size"; a 0-d tensor is {name}(())'
        )
    return (options.pop("size"),)


@op
def full(
    size: Sequence[int] | int,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A tensor of shape ``size``, of one number; ``options`` as in `zeros`.

    Raises
    ------
    RuntimeError
        For negative extents; MemoryError if the memory is not to be had.
    TypeError
        For a ``size`` that is not a sequence of integers.
    """
    where = resolve(device, options.get("out"))
    return _full(extents("full", (size,)), fill_value, dtype, where, requires_grad, options)


def _full(
    shape: tuple[int, ...], value: Any, d: Any, where: device, requires_grad: bool, options: Any
) -> Tensor:
    """Return a tensor of one number, of a shape and on a device that are there."""
    if isinstance(value, (np.number, np.bool_, Tensor)):
        value = value.item()
    if options:
        d = type_for(d, options.get("out"))
    d = dt.scalar_type(value) if d is None else as_dtype(d)
    array = backend(where).full(shape, number_in(value, d), d, where)
    return _finish(array, d, where, requires_grad, options)


def _filled(value: float) -> Any:
    @op
    def make(
        *size: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> Tensor:
        shape = extents(make.__name__, size or _named_size(make.__name__, options))
        where = resolve(device, options.get("out"))
        if options:
            dtype = type_for(dtype, options.get("out"))
        d = get_default_dtype() if dtype is None else as_dtype(dtype)
        array = backend(where).full(shape, value, d, where)
        return _finish(array, d, where, requires_grad, options)

    return make


zeros = _filled(0.0)
zeros.__name__ = "zeros"
zeros.__doc__ = """A tensor of zeros, of shape ``size``: ints or a sequence.

``options`` are ``out=``, a tensor to write; ``pin_memory=True`` for page-locked memory;
``memory_format=``; and ``layout=``, which must be strided. RuntimeError for a negative extent,
TypeError for one that is not an integer.
"""
ones = _filled(1.0)
ones.__name__, ones.__doc__ = "ones", "A tensor of ones, of shape ``size``; otherwise as `zeros`."


@op
def empty(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A tensor of shape ``size`` that holds what the memory held; ``options`` as in `zeros`.

    Under `use_deterministic_algorithms` it is filled with NaN, True or the largest integer, unless
    ``utils.deterministic.fill_uninitialized_memory`` is False.

    TypeError for a ``size`` that is not a sequence of integers; RuntimeError for negative ones.
    """
    where = resolve(device, options.get("out"))
    dtype = type_for(dtype, options.get("out"))
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    shape = extents("empty", size or _named_size("empty", options))
    there, value = backend(where), unwritten(d)
    array = there.empty(shape, d, where) if value is None else there.full(shape, value, d, where)
    return _finish(array, d, where, requires_grad, options)


def _like(
    input: Tensor, value: Any, dtype: Any, device: Any, requires_grad: bool, options: Any
) -> Tensor:
    if input._is_sparse:
        _refuse_format(options)
        zeros: Tensor = input._full_like(value, dtype, device, requires_grad)
        return zeros
    program = input._expr.program
    d = program.dtype if dtype is None else dtype
    where = program.device if device is None else resolve(device)
    wanted = options.pop("memory_format", None)
    made = like(_full(input._expr.shape, value, d, where, False, options), input, wanted)
    return made._mark() if requires_grad else made


def _refuse_format(options: dict[str, Any]) -> None:
    """Refuse a memory format for a sparse tensor, which has none."""
    if options.get("memory_format") is not None:
        raise RuntimeError("memory format option is only supported by strided tensors")


@op
def zeros_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """Zeros of another tensor's shape, type and device."""
    return _like(input, 0, dtype, device, requires_grad, options)


@op
def ones_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """Ones of another tensor's shape, type and device."""
    return _like(input, 1, dtype, device, requires_grad, options)


@op
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """One number in another tensor's shape, type and device."""
    return _like(input, fill_value, dtype, device, requires_grad, options)


@op
def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """Uninitialized memory of another tensor's shape, type and device.

    RuntimeError for a ``memory_format`` of a sparse tensor.
    """
    if input._is_sparse:
        _refuse_format(options)
        return input._full_like(0, dtype, device, requires_grad)
    d = input.dtype if dtype is None else dtype
    where = input.device if device is None else device
    wanted = options.pop("memory_format", None)
    shape = input._expr.shape
    made = like(empty(shape, dtype=d, device=where, **options), input, wanted)
    return made._mark() if requires_grad else made


@batching(zeros_like, ones_like, full_like, empty_like)
def _like_batched(level: Batch, f: Any, x: Tensor, *args: Any, **options: Any) -> Any:
    if options.pop("requires_grad", False):
        raise RuntimeError(
            "vmap: requires_grad=True makes a leaf inside a function that is being transformed; "
            "use lucid_gpu.func.grad instead"
        )
    return level.wrap(f(level.value(x), *args, **options))


def _from_host(array: Any, d: dtype, where: device, requires_grad: bool, options: Any) -> Tensor:
    return _finish(backend(where).asarray(array, d, where), d, where, requires_grad, options)


@op
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """The vector of numbers from ``start`` (0 if alone) up to but without ``end``, by ``step``.

    RuntimeError for a step that is zero or leads away from ``end``, and for ends that are not
    finite; TypeError without an end; NotImplementedError for bool and complex; ValueError for
    ``step=0`` among integers.
    """
    if start is None or end is None:
        start, end = 0, start if end is None else end
    if end is None:
        raise TypeError("arange() needs an end: arange(end), arange(start, end, step)")
    kinds = {type(start), type(end), type(step)}
    if not kinds <= _REAL:
        numbers = (Tensor, np.generic)
        start, end, step = [x.item() if isinstance(x, numbers) else x for x in (start, end, step)]
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if options:
        dtype = type_for(dtype, options.get("out"))
    if dtype is None:
        whole = kinds == _WHOLE or all(isinstance(x, int) for x in (start, end, step))
        d = dt.int64 if whole else get_default_dtype()
    else:
        d = as_dtype(dtype)
    if d.category not in (1, 2):
        raise dt.unimplemented("arange", d)
    cut = int(start), int(end), int(step)
    if d.category == 1 and cut[2] == 0:
        raise ValueError("step must be nonzero")
    if d is dt.int64:  # PyTorch cuts what it is given, for the other integers after counting
        start, end, step = cut
    count = math.ceil((end - start) / step)
    if count > sys.maxsize:
        raise RuntimeError("invalid size, possible overflow?")
    if d.category == 1:
        start, end, step = cut
    out = options.get("out")
    if out is not None and out.numel() not in (0, count):
        warn_user(
            f"The number of elements in the out tensor of shape {list(out.shape)} is {out.numel()} "
            f"which does not match the computed number of elements {count}. Note that this may "
            "occur as a result of rounding error. The out tensor will be resized to a tensor of "
            f"shape ({count},)."
        )
    where_ = resolve(device, out)
    if where_.type != "cpu":
        made = shape_for(_range(start, step, count, d, where_), out)
        return _finish(made, d, where_, requires_grad, options)
    if d.category == 1:
        array = np.arange(count, dtype=np.int64) * step + start
    else:
        array = np.arange(count, dtype=np.float64) * step + start
    return _from_host(shape_for(array, out), d, where_, requires_grad, options)


_WHOLE = {int}
_REAL = {int, float}


def _range(start: Any, step: Any, count: int, d: dt.dtype, where: device) -> Any:
    """`arange` where nothing is copied from the host; the same bits."""
    wide = dt.int64 if d.category == 1 else dt.float64
    numbers = from_array(backend(where).arange(count, wide, where), wide, where)
    if (start, step) != (0, 1):
        numbers = numbers * step + start
    return numbers.to(d).array


@op
def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A vector of ``steps`` evenly spaced numbers from ``start`` to ``end``, both included.

    RuntimeError for negative ``steps``; NotImplementedError for bool.
    """
    steps = operator.index(steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = ends_of("linspace", start, end)
    d = _type_between("linspace", start, end, type_for(dtype, options.get("out")))
    if d.category < 2:  # PyTorch cuts what it is given
        start, end = number_in(start, d), number_in(end, d)
    where = resolve(device, options.get("out"))
    if where.type == "cpu" or steps < 2 or not _finite(start, end):
        array = shape_for(spaced(start, end, steps), options.get("out"))
        return _from_host(array, d, where, requires_grad, options)
    made = shape_for(_evenly_spaced(start, end, steps, where).to(d).array, options.get("out"))
    return _finish(made, d, where, requires_grad, options)


def _finite(start: Any, end: Any) -> bool:
    """Whether both are real numbers, and neither NaN nor infinite."""
    return not isinstance(start + end, complex) and math.isfinite(start) and math.isfinite(end)


def spaced(start: Any, end: Any, steps: int) -> Any:
    """`numpy.linspace`; of infinite numbers and NaN the values that steps from both ends have."""
    if isinstance(start + end, complex) or steps < 2:
        return np.linspace(start, end, steps) if steps != 1 else np.array([start])
    if math.isfinite(start) and math.isfinite(end):  # the same bits in fewer calls
        start, end, spread = float(start), float(end), np.arange(steps, dtype=np.float64)
        width = end - start
        step = width / (steps - 1)
        spread = spread * step if step else spread / (steps - 1) * width
        spread += start
        spread[-1] = end
        return spread
    places = np.arange(steps)
    with np.errstate(invalid="ignore"):
        step = (np.float64(end) - start) / (steps - 1)
        return np.where(
            places < steps // 2, start + step * places, end - step * (steps - 1 - places)
        )


def ends_of(name: str, start: Any, end: Any) -> list[Any]:
    """The first and the last number, which may be in 0-d tensors."""
    if getattr(start, "ndim", 0) or getattr(end, "ndim", 0):
        raise RuntimeError(
            f"{name} only supports 0-dimensional start and end tensors, but got start with "
            f"{getattr(start, 'ndim', 0)} dimension(s) and end with {getattr(end, 'ndim', 0)} "
            "dimension(s)."
        )
    return [x.item() if isinstance(x, (Tensor, np.generic)) else x for x in (start, end)]


def _type_between(name: str, start: Any, end: Any, dtype: Any) -> dtype:
    """The type of numbers from ``start`` to ``end``; RuntimeError for a real one, complex ends."""
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    if d is dt.bool:
        raise dt.unimplemented(name, d)
    if d.category == 3 or not (isinstance(start, complex) or isinstance(end, complex)):
        return d
    wide = dt.complex128 if get_default_dtype() is dt.float64 else dt.complex64
    if dtype is not None:
        raise RuntimeError(
            f"torch.{name}(): inferred dtype {wide.name} can't be safely cast to passed dtype "
            f"{d.name}"
        )
    return wide


def _evenly_spaced(start: Any, end: Any, steps: int, where: device) -> Tensor:
    """`numpy.linspace` where nothing is copied from the host; the same bits, but for denormals."""
    start, end = float(start), float(end)
    places = from_array(backend(where).arange(steps, dt.float64, where), dt.float64, where)
    inside = places * ((end - start) / (steps - 1)) + start
    return inside.where(places != steps - 1, end)


@op
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """Ones on the diagonal of an ``n`` by ``m`` matrix, zeros elsewhere.

    RuntimeError for negative extents.
    """
    n, m = operator.index(n), None if m is None else operator.index(m)
    for name, count in (("n", n), ("m", m)):
        if count is not None and count < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {count}")
    dtype = type_for(dtype, options.get("out"))
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    where = resolve(device, options.get("out"))
    if where.type == "cpu":
        return _from_host(np.eye(n, m), d, where, requires_grad, options)
    rows, columns = [
        from_array(backend(where).arange(count, dt.int64, where), dt.int64, where)
        for count in (n, n if m is None else m)
    ]
    diagonal = rows[:, None] == columns
    return _finish(diagonal.to(d).array, d, where, requires_grad, options)


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """A 0-d tensor; ``options`` as in `full`."""
    d = get_default_dtype() if dtype is None else dtype
    return full((), s, dtype=d, device=device, **options)


@op
def _new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """`tensor` of this one's type, on its device, unless told otherwise; of the data's shape."""
    return tensor(data, **{"dtype": self.dtype, "device": self.device, **options})


def _new(maker: Any) -> Any:
    def method(self: Tensor, *size: Any, **options: Any) -> Tensor:
        wrapper = self._wrapper
        if wrapper is not None and wrapper.level.batches:  # each example has one of its own
            shared = method(wrapper.value, *size, **options)
            level = wrapper.level
            own: Tensor = level.wrap(level.full(shared).clone())
            return own
        made: Tensor = maker(*size, **{"dtype": self.dtype, "device": self.device, **options})
        return made

    method.__doc__ = (
        f"`{maker.__name__}`, of a shape, in this tensor's type and on its device, unless "
        "others are given."
    )
    return method


attach(Tensor, **{f"new_{maker.__name__}": _new(maker) for maker in (zeros, ones, empty, full)})
_set("new_tensor", _new_tensor)
FUNCTIONS = (tensor, as_tensor, from_numpy, full, zeros, ones, empty, zeros_like, ones_like,
             full_like, empty_like, arange, linspace, eye, scalar_tensor)  # fmt: skip
