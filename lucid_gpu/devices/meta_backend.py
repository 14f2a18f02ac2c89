"""The backend of the device ``meta``: arrays that have a shape, a type and strides, no elements.

A `MetaArray` is one of NumPy's arrays over address space that is reserved and never written, so
views of it, their strides and their order are NumPy's own and take no memory. Whatever would
compute elements is answered with the shape and type of its result; what depends on elements is
refused.
"""

from __future__ import annotations

import functools
import itertools
import math
import mmap
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from lucid_gpu.core.layout import strides_of_view
from lucid_gpu.device import device
from lucid_gpu.devices.port import OneDevice
from lucid_gpu.dtypes import dtype

__all__ = ["META", "MetaArray", "MetaBackend", "meta_array", "no_rule"]

META = device("meta")
LINE = 64  # bytes between the addresses of two arrays
_numbers = itertools.count()
NO_ITEM = "Tensor.item() cannot be called on meta tensors"


def no_rule(name: str) -> NotImplementedError:
    """The error of what has no rule here, or a result whose shape depends on elements."""
    return NotImplementedError(
        f"{name}: attempted to run this operator with Meta tensors, which have no elements, but "
        "its result depends on them, or nothing here says what its shape is; move what it reads "
        "to a device with memory (to_empty(device='cpu'), load_state_dict(assign=True))"
    )


@functools.cache
def _address_space() -> mmap.mmap:
    """Pages that nobody writes: they are reserved and take no memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    for bits in range(46, 31, -1):
        try:
            return mmap.mmap(-1, 1 << bits, flags=flags, prot=mmap.PROT_READ)
        except (OSError, ValueError):  # a limit of the process
            continue
    raise MemoryError("no address space of 4 GiB is left for tensors on the device meta")


def meta_array(shape: Sequence[int], kind: Any) -> MetaArray:
    """A row-major array of a shape and of NumPy's type, at an address of its own."""
    space = _address_space()
    half = len(space) // 2
    try:
        return MetaArray(shape, kind, space, next(_numbers) * LINE % half)
    except (TypeError, ValueError):
        if math.prod(shape) * np.dtype(kind).itemsize <= half:
            raise
        raise MemoryError(
            f"a tensor of shape {list(shape)} on the device meta exceeds {half} bytes, which is "
            "what there are addresses for"
        ) from None


def _in_order_of(array: Any, kind: Any = None, order: str = "K") -> MetaArray:
    """A copy's array: it lies as NumPy's copy of that array does."""
    kind = array.dtype if kind is None else np.dtype(kind)
    if order in "AK" and not array.flags.c_contiguous and array.ndim > 1:
        axes = sorted(range(array.ndim), key=lambda i: -abs(array.strides[i]))
        laid = meta_array([array.shape[i] for i in axes], kind)
        return laid.transpose(np.argsort(axes))
    return meta_array(array.shape, kind)


def _one(value: Any) -> Any:
    """A stand-in of one element, for the type of a result."""
    return np.ones((1,) * value.ndim, value.dtype) if isinstance(value, np.ndarray) else value


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    return tuple(a % rank for a in (axis if isinstance(axis, tuple) else (axis,)))


def _reduced(shape: Sequence[int], axis: Any, keepdims: bool) -> tuple[int, ...]:
    axes = _axes(axis, len(shape))
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def _product_shape(a: Any, b: Any) -> tuple[int, ...]:
    """The shape of ``numpy.matmul`` of arrays with two dimensions or more."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (*lead, a.shape[-2], b.shape[-1])


class MetaArray(np.ndarray[Any, Any]):
    """An array without elements; made by `meta_array`."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        options.pop("where", None)
        if out is not None and all(type(array) is MetaArray for array in out):
            return out[0] if len(out) == 1 else out
        if method == "at":
            return None
        if method == "__call__" and ufunc.signature is not None:
            if ufunc is not np.matmul:
                raise no_rule(ufunc.__name__)
            kind = np.result_type(*[x.dtype for x in inputs])
            results: tuple[Any, ...] = (meta_array(_product_shape(*inputs), kind),)
        elif method == "__call__":
            kinds = ufunc(*[_one(x) for x in inputs], **options)
            shape = np.broadcast_shapes(*[np.shape(x) for x in inputs])
            of = kinds if isinstance(kinds, tuple) else (kinds,)
            like = next((x for x in inputs if np.shape(x) == shape), None)
            results = tuple(
                meta_array(shape, k.dtype) if like is None else _in_order_of(like, k.dtype)
                for k in of
            )
        elif method in ("reduce", "accumulate"):
            kind = getattr(ufunc, method)(np.ones(1, inputs[0].dtype), dtype=options.get("dtype"))
            shape = inputs[0].shape
            if method == "reduce":
                axis = inputs[1] if len(inputs) > 1 else options.get("axis", 0)
                shape = _reduced(shape, axis, options.get("keepdims", False))
            results = (meta_array(shape, kind.dtype),)
        else:
            raise no_rule(f"{ufunc.__name__}.{method}")
        return results[0] if len(results) == 1 else results

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = _RULES.get(function)
        if rule is not None:
            return rule(*args, **kwargs)
        if function not in _VIEWS:
            raise no_rule(function.__name__)
        return _without_elements(super().__array_function__(function, types, args, kwargs))

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, (np.ndarray, list)) for part in parts):
            return _picked(self, parts)
        part = super().__getitem__(index)
        return part if isinstance(part, MetaArray) else meta_array((), self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Nothing is written."""

    def reshape(self, *shape: Any, order: Any = "C", copy: Any = None) -> Any:
        wanted = shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape
        known = _completed([int(n) for n in wanted], self.size)
        if self.flags.c_contiguous:
            return super().reshape(known)
        strides = strides_of_view(self.shape, self.strides, known, self.itemsize)
        return (
            meta_array(known, self.dtype) if strides is None else _as_strided(self, known, strides)
        )

    def ravel(self, order: Any = "C") -> Any:
        return self.reshape(-1)

    def flatten(self, order: Any = "C") -> Any:
        return meta_array((self.size,), self.dtype)

    def copy(self, order: Any = "C") -> Any:
        return _in_order_of(self, None, order)

    def astype(
        self,
        dtype: Any,
        order: Any = "K",
        casting: Any = "unsafe",
        subok: bool = True,
        copy: Any = True,
    ) -> Any:
        if not copy and self.dtype == dtype:
            return self
        return _in_order_of(self, dtype, order)

    def fill(self, value: Any) -> None:
        """Nothing is written."""

    def sort(self, axis: Any = -1, kind: Any = None, order: Any = None, **_: Any) -> None:
        """Nothing is written."""

    def argsort(self, axis: Any = -1, kind: Any = None, order: Any = None, **_: Any) -> Any:
        return meta_array(self.shape, np.int64)

    def argmax(self, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        return meta_array(_reduced(self.shape, axis, keepdims), np.int64)

    argmin = argmax

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        if axis is None:
            return meta_array(np.shape(indices), self.dtype)
        axis %= self.ndim
        shape = (*self.shape[:axis], *np.shape(indices), *self.shape[axis + 1 :])
        return meta_array(shape, self.dtype)

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        if axis is None:
            return self.reshape(-1).repeat(repeats, 0)
        shape = list(self.shape)
        if isinstance(repeats, MetaArray):
            raise no_rule("repeat")
        many = np.asarray(repeats)
        shape[axis] = int(many.sum()) if many.size > 1 else shape[axis] * int(many)
        return meta_array(shape, self.dtype)

    @property
    def real(self) -> Any:
        return np.ndarray.real.__get__(self)

    @real.setter
    def real(self, value: Any) -> None:
        """Nothing is written."""

    @property
    def imag(self) -> Any:
        return np.ndarray.imag.__get__(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        """Nothing is written."""

    def dot(self, b: Any, out: Any = None) -> Any:
        return np.matmul(self, b, out)

    def item(self, *args: Any) -> Any:
        raise RuntimeError(NO_ITEM)

    tolist = item
    __bool__ = __int__ = __float__ = __complex__ = __index__ = item

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise no_rule("an op whose result depends on elements")

    nonzero = tobytes = choose = compress = partition = argpartition = searchsorted = _refuse


def _without_elements(result: Any) -> Any:
    """What a view's function returned, as the class that it may have lost."""
    if isinstance(result, np.ndarray):
        return result if isinstance(result, MetaArray) else result.view(MetaArray)
    if isinstance(result, (list, tuple)) and result and isinstance(result[0], np.ndarray):
        return [_without_elements(part) for part in result]
    return result


def _completed(shape: list[int], size: int) -> list[int]:
    if -1 not in shape:
        return shape
    rest = math.prod(n for n in shape if n != -1)
    return [size // rest if n == -1 and rest else max(n, 0) for n in shape]


_KEPT = (slice, type(None), type(Ellipsis))  # parts of an index that pick nothing


def _picked(array: Any, parts: tuple[Any, ...]) -> Any:
    """The result of an index with arrays of positions, by NumPy's rule.

    The dimensions of what is picked come where the only group of arrays stands, else first.
    """
    parts = tuple(np.asarray(part) if isinstance(part, list) else part for part in parts)
    if any(getattr(part, "dtype", None) == np.bool_ for part in parts):
        raise no_rule("an index with a mask")
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    rest = (slice(None),) * (array.ndim - taken)
    if Ellipsis not in [part for part in parts if not isinstance(part, np.ndarray)]:
        parts = (*parts, Ellipsis)
    full: list[Any] = []
    for part in parts:
        full += rest if part is Ellipsis else (part,)
    places = [i for i, part in enumerate(parts) if not isinstance(part, _KEPT)]
    picked = np.broadcast_shapes(*[np.shape(parts[i]) for i in places])
    extents, axis = [], 0
    for part in full:
        if isinstance(part, slice):
            extents.append(len(range(*part.indices(array.shape[axis]))))
        elif part is None:
            extents.append(1)
        axis += part is not None
    together = places[-1] - places[0] + 1 == len(places)
    before = [isinstance(part, _KEPT) for part in full].index(False) if together else 0
    return meta_array((*extents[:before], *picked, *extents[before:]), array.dtype)


# --- NumPy's functions ----------------------------------------------------------------------------

_VIEWS = frozenset(
    (
        *(np.broadcast_to, np.broadcast_arrays, np.moveaxis, np.rollaxis, np.swapaxes, np.squeeze),
        *(np.expand_dims, np.flip, np.fliplr, np.flipud, np.transpose, np.reshape, np.ravel),
        *(np.split, np.array_split, np.real, np.imag, np.diagonal, np.result_type, np.shape),
        *(np.ndim, np.size, np.may_share_memory, np.shares_memory, np.rot90),
        *(np.atleast_1d, np.atleast_2d, np.atleast_3d, np.can_cast, np.common_type),
        *(np.iscomplexobj, np.isrealobj),
        *(np.sum, np.prod, np.mean, np.max, np.min, np.amax, np.amin, np.all, np.any),
        *(np.cumsum, np.cumprod, np.clip, np.take, np.repeat, np.argmax, np.argmin, np.argsort),
    )
)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None:
        raise no_rule("where")
    shape = np.broadcast_shapes(np.shape(condition), np.shape(x), np.shape(y))
    return meta_array(shape, np.result_type(*[getattr(v, "dtype", v) for v in (x, y)]))


def _concatenate(arrays: Any, axis: Any = 0, out: Any = None, dtype: Any = None, **_: Any) -> Any:
    if out is not None:
        return out
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    return meta_array(shape, dtype or np.result_type(*[a.dtype for a in arrays]))


def _stack(arrays: Any, axis: int = 0, out: Any = None, **_: Any) -> Any:
    return _concatenate([np.expand_dims(a, axis) for a in arrays], axis, out)


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **_: Any) -> Any:
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2))
    return meta_array([n + int(w.sum()) for n, w in zip(array.shape, widths)], array.dtype)


def _same(array: Any, *_: Any, **__: Any) -> Any:
    return meta_array(array.shape, array.dtype)


def _like(kind: Any = None) -> Callable[..., Any]:
    def made(array: Any, *fill: Any, dtype: Any = None, shape: Any = None, **_: Any) -> Any:
        extents = array.shape if shape is None else shape
        return meta_array(extents, kind or dtype or array.dtype)

    return made


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is written."""


def _tile(array: Any, reps: Any) -> Any:
    rank = max(array.ndim, len(reps))
    shape, reps = [1] * (rank - array.ndim) + [*array.shape], [1] * (rank - len(reps)) + [*reps]
    return meta_array([n * r for n, r in zip(shape, reps)], array.dtype)


def _take_along(array: Any, indices: Any, axis: Any = -1) -> Any:
    shape = list(np.broadcast_shapes(array.shape[:0], indices.shape))
    return meta_array(shape, array.dtype)


def _triangle(array: Any, k: int = 0) -> Any:
    return meta_array(array.shape, array.dtype)


_RULES: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.pad: _pad,
    np.tile: _tile,
    np.roll: _same,
    np.sort: _same,
    np.nan_to_num: _same,
    np.partition: _same,
    np.tril: _triangle,
    np.triu: _triangle,
    np.take_along_axis: _take_along,
    np.put_along_axis: _nothing,
    np.copyto: _nothing,
    np.searchsorted: lambda a, v, side="left", sorter=None: meta_array(np.shape(v), np.int64),
    np.isin: lambda element, *_, **__: meta_array(np.shape(element), np.bool_),
    np.copy: lambda array, *_, **__: array.copy("K"),
    np.empty_like: _like(),
    np.zeros_like: _like(),
    np.ones_like: _like(),
    np.full_like: _like(),
    np.isneginf: _like(np.bool_),
    np.isposinf: _like(np.bool_),
    np.count_nonzero: lambda a, axis=None, *, keepdims=False: meta_array(
        _reduced(a.shape, axis, keepdims), np.int64
    ),
}


def _as_strided(array: Any, shape: Any = None, strides: Any = None) -> Any:
    return np.lib.stride_tricks.as_strided(array, shape, strides).view(MetaArray)


def _sliding_window_view(array: Any, window_shape: Any, axis: Any = None) -> Any:
    seen = np.lib.stride_tricks.sliding_window_view(array.view(np.ndarray), window_shape, axis)
    return seen.view(MetaArray)


class _Namespace:
    """NumPy with functions that make arrays of this device; the others see `MetaArray`."""

    lib = SimpleNamespace(
        stride_tricks=SimpleNamespace(
            as_strided=_as_strided, sliding_window_view=_sliding_window_view
        )
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any = np.float64, order: Any = "C") -> Any:
        return meta_array((shape,) if isinstance(shape, int) else shape, dtype)

    zeros = ones = empty

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Any:
        kind = np.asarray(fill_value).dtype if dtype is None else dtype
        return self.empty(shape, kind)

    def arange(self, *args: Any, dtype: Any = None) -> Any:
        count = (
            max(math.ceil((args[1] - args[0]) / (args[2] if len(args) > 2 else 1)), 0)
            if len(args) > 1
            else math.ceil(args[0])
        )
        return meta_array((count,), dtype or np.result_type(*args))

    def eye(self, n: int, m: int | None = None, k: int = 0, dtype: Any = np.float64) -> Any:
        return meta_array((n, n if m is None else m), dtype)

    def asarray(self, data: Any, dtype: Any = None, order: Any = None, **_: Any) -> Any:
        if not isinstance(data, MetaArray):
            source = np.asarray(data, dtype)
            return meta_array(source.shape, source.dtype)
        laid = data if order != "C" or data.flags.c_contiguous else data.copy()
        return laid if dtype is None else laid.astype(dtype, copy=False)

    def array(self, data: Any, dtype: Any = None, **_: Any) -> Any:
        array = self.asarray(data, dtype)
        return array.copy() if array is data else array

    def ascontiguousarray(self, data: Any, dtype: Any = None) -> Any:
        return self.asarray(data, dtype, "C")


def _decomposed(name: str, a: Any, *others: Any, **options: Any) -> Any:
    """The shapes of what a function of ``numpy.linalg`` gives."""
    (*lead, n, m), kind = a.shape, a.dtype
    k = min(n, m)
    real = np.zeros(0, kind).real.dtype
    if name in ("cholesky", "inv"):
        return meta_array(a.shape, kind)
    if name == "solve":
        return meta_array(others[0].shape, kind)
    if name == "det":
        return meta_array(lead, kind)
    if name == "slogdet":
        return meta_array(lead, kind), meta_array(lead, real)
    if name in ("eig", "eigvals"):
        wide = np.complex128 if real == np.float64 else np.complex64
        values = meta_array((*lead, n), wide)
        return values if name == "eigvals" else (values, meta_array(a.shape, wide))
    if name == "svd":
        full = options.get("full_matrices", True)
        values = meta_array((*lead, k), real)
        if not options.get("compute_uv", True):
            return values
        u = meta_array((*lead, n, n if full else k), kind)
        return u, values, meta_array((*lead, m if full else k, m), kind)
    if name == "eigvalsh":
        return meta_array((*lead, n), real)
    if name == "eigh":
        return meta_array((*lead, n), real), meta_array(a.shape, kind)
    if name == "qr" and options.get("mode") == "raw":
        return meta_array((*lead, m, n), kind), meta_array((*lead, k), kind)
    if name == "qr":
        whole = n if options.get("mode") == "complete" else k
        r = meta_array((*lead, whole, m), kind)
        return r if options.get("mode") == "r" else (meta_array((*lead, n, whole), kind), r)
    raise no_rule(f"linalg.{name}")


class MetaBackend(OneDevice):
    """Arrays without elements."""

    type = "meta"
    xp: Any = _Namespace()
    new = staticmethod(meta_array)

    def device_of(self, array: Any) -> device:
        return META

    def address(self, array: Any) -> int:
        pointer: int = array.__array_interface__["data"][0]
        return pointer

    def is_borrowed(self, array: Any) -> bool:
        return False

    def empty(self, shape: Sequence[int], d: dtype, where: device) -> Any:
        return meta_array(shape, d.numpy)

    def full(self, shape: Sequence[int], value: Any, d: dtype, where: device) -> Any:
        return meta_array(shape, d.numpy)

    def arange(self, count: int, d: dtype, where: device) -> Any:
        return meta_array((count,), d.numpy)

    def asarray(self, data: Any, d: dtype, where: device) -> Any:
        return meta_array(np.shape(data), d.numpy)

    def to_numpy(self, array: Any) -> Any:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def from_numpy(self, array: Any, where: device) -> Any:
        return _in_order_of(array)

    def item(self, array: Any) -> Any:
        raise RuntimeError(NO_ITEM)

    def matmul(self, a: Any, b: Any, d: dtype, out: Any = None) -> Any:
        return meta_array(_product_shape(a, b), d.numpy) if out is None else out

    matmul_beside = matmul

    def matmul_of_rows(self, a: Any, b: Any, d: dtype) -> Any:
        return self.matmul(a.T, b, d)

    def library(self, module: str, name: str, where: device, *arrays: Any, **options: Any) -> Any:
        if module == "linalg":
            return _decomposed(name, *arrays, **options)
        array, shape = arrays[0], list(arrays[0].shape)
        wide = array.dtype in (np.float64, np.complex128)
        if name == "rfft":
            shape[options["axis"]] = shape[options["axis"]] // 2 + 1
        elif name == "irfft":
            shape[options["axis"]] = arrays[1]
            return meta_array(shape, np.float64 if wide else np.float32)
        return meta_array(shape, np.complex128 if wide else np.complex64)

    def argsort(self, array: Any, dim: int) -> Any:
        return meta_array(array.shape, np.int64)

    def synchronize(self) -> None:
        """Nothing runs."""

    def host_record(self, count: int) -> tuple[Any, int]:
        raise no_rule("a launch")
