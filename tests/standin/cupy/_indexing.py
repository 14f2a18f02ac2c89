"""Indexing as CuPy does it: indices out of bounds wrap around instead of raising."""

from __future__ import annotations

from typing import Any

import numpy

from cupy import _core, _counts
from lucid_gpu.devices.copies import where_cut

_SCATTERED = {  # what atomics exist for
    "add": ("int32", "float16", "float32", "float64", "uint32", "uint64"),
    "max": ("int32", "float32", "float64", "uint32", "uint64"),
    "min": ("int32", "float32", "float64", "uint32", "uint64"),
}


def _prepare(slices: Any) -> list[Any]:
    """Lists and NumPy arrays become device arrays, as CuPy makes them."""
    from cupy import array, ndarray

    found = list(slices) if isinstance(slices, tuple) else [slices]
    for i, s in enumerate(found):
        if s is None or s is Ellipsis or isinstance(s, (slice, ndarray)):
            continue
        if numpy.isscalar(s) and not isinstance(s, (bool, numpy.bool_)):
            continue
        try:
            made = array(s)
        except ValueError:
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`),numpy.newaxis (`None`) and integer "
                "or boolean arrays are valid indices"
            ) from None
        if isinstance(s, (list, tuple)) and made.size == 0:
            made = made.astype(numpy.int32)
        found[i] = made
    return found


def _host_index(array: Any, slices: list[Any]) -> tuple[tuple[Any, ...], bool]:
    """An index for NumPy with every integer inside, and whether there are arrays in it."""
    from cupy import ndarray

    used = 0
    for s in slices:
        if isinstance(s, ndarray):
            if s.dtype.kind not in "biu":
                raise IndexError(
                    "arrays used as indices must be of integer or boolean type. "
                    f"(actual: {s.dtype.type})"
                )
            used += s.ndim if s.dtype.kind == "b" else 1
        elif s is not None and s is not Ellipsis:
            used += 1
    if sum(s is Ellipsis for s in slices) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > array.ndim:
        raise IndexError(
            f"too many indices for array: array is {array.ndim}-dimensional, but {used} were "
            "indexed"
        )
    made: list[Any] = []
    axis, advanced = 0, False
    for s in slices:
        if isinstance(s, ndarray):
            advanced = True
            host = _core.host_of(s)
            if s.dtype.kind == "b":
                host = host.copy()  # the array may be gone before its memory is read
                axis += s.ndim
            else:
                size = array.shape[axis]
                axis += 1
                if size:
                    host = host.astype(numpy.int64) % size
                elif host.size:
                    raise IndexError("cannot do a non-empty take from an empty axes.")
                else:
                    host = host.astype(numpy.int64)
            made.append(host)
        elif s is Ellipsis:
            made.append(s)
            axis += array.ndim - used
        elif s is None:
            made.append(s)
        elif isinstance(s, slice):
            parts = [None if p is None else int(p) for p in (s.start, s.stop, s.step)]
            made.append(slice(*parts))
            axis += 1
        else:
            size, place = array.shape[axis], int(s)
            if not -size <= place < size:
                raise IndexError(f"Index {s} is out of bounds for axis {axis} with size {size}")
            made.append(place)
            axis += 1
    if Ellipsis not in [m for m in made if not isinstance(m, numpy.ndarray)]:
        made.append(Ellipsis)
    return tuple(made), advanced


def getitem(array: Any, slices: Any) -> Any:
    index, advanced = _host_index(array, _prepare(slices))
    if not advanced:
        # what has elements is cut with the start that NumPy forgets where nothing is left
        part = array._a[index]
        part = where_cut(part, array._a, index) if array._a.size else part
        return array._view(part)
    _note_masks(index)
    return _core.place(_core.host_of(array)[index])


def _note_masks(index: Any) -> None:
    """For how many a mask keeps, to read them or to write them, the host waits."""
    for i in index:
        if isinstance(i, numpy.ndarray) and i.dtype.kind == "b":
            _counts.note("wait", "mask")


def setitem(array: Any, slices: Any, value: Any) -> None:
    from cupy import array as make
    from cupy import ndarray

    index, advanced = _host_index(array, _prepare(slices))
    if not advanced:
        part = array._view(array._a[index])
        if not isinstance(value, ndarray):
            part.fill(value)
            return
        _core.check_device(array)
        host = _core.host_of(value)
        if numpy.may_share_memory(host, part._a):  # CuPy copies it first, NumPy not always
            host = host.copy()
        _core.write(part, _without_leading_ones(host, part.ndim))
        return
    _note_masks(index)
    if not isinstance(value, ndarray):
        value = make(value, dtype=array.dtype)
    host = _core.host_of(value).astype(array.dtype)
    if host.ndim:
        host = _without_leading_ones(host, array._a[index].ndim)
    target = _core.host_of(array)
    _write_at(target, index, host)


def _without_leading_ones(host: Any, ndim: int) -> Any:
    while host.ndim > ndim and host.shape[0] == 1:
        host = host[0]
    return host


def _write_at(target: Any, index: tuple[Any, ...], value: Any) -> None:
    """Where an index comes twice, which value stays is undefined: here the first, not the last."""
    from cupy.cuda import stream

    arrays = [i for i in index if isinstance(i, numpy.ndarray)]
    if len(arrays) == 1 and arrays[0].dtype.kind != "b" and len(index) == 2 and index[1] is ...:
        turned = numpy.flip(arrays[0])
        shape = arrays[0].shape + target.shape[1:]
        axes = tuple(range(arrays[0].ndim))
        value = numpy.flip(numpy.broadcast_to(value, shape), axes)
        index = (turned, ...)
    if stream.get_current_stream().ptr:
        value, index = numpy.array(value), tuple([_kept(i) for i in index])

    def store() -> None:
        target[index] = value

    stream._submit(store)


def _kept(index: Any) -> Any:
    return index.copy() if isinstance(index, numpy.ndarray) else index


def scatter(array: Any, slices: Any, value: Any, op: str) -> None:
    """Atomic updates: every repeated index counts."""
    from cupy import array as make
    from cupy import ndarray
    from cupy.cuda import stream

    index, advanced = _host_index(array, _prepare(slices))
    if advanced and array.dtype.name not in _SCATTERED[op]:
        raise TypeError(f"scatter_{op} only supports {', '.join(_SCATTERED[op])}, as data type")
    if not isinstance(value, ndarray):
        value = make(value, dtype=array.dtype)
    host = _core.host_of(value).astype(array.dtype, copy=False)
    target = _core.host_of(array)
    ufunc = {"add": numpy.add, "max": numpy.maximum, "min": numpy.minimum}[op]

    def update() -> None:
        with numpy.errstate(all="ignore"):
            ufunc.at(target, index, host)

    stream._submit(update)


def take(array: Any, indices: Any, axis: Any = None, out: Any = None) -> Any:
    from cupy import array as make
    from cupy import ndarray

    if not isinstance(indices, ndarray) and not numpy.isscalar(indices):
        indices = make(indices, dtype=int)
    places = indices if numpy.isscalar(indices) else _core.host_of(indices)
    host = _core.host_of(array)
    if host.size == 0 and numpy.size(places):
        raise IndexError("cannot do a non-empty take from an empty axes.")
    found = _core.place(host.take(places, axis, mode="wrap"))
    if out is None:
        return found
    if out.dtype != array.dtype:
        raise TypeError("Output dtype mismatch")
    if out.shape != found.shape:
        raise ValueError("Output shape mismatch")
    out[...] = found
    return out
