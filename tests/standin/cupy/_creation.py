"""Arrays from numbers, from the host, and filled ones."""

from __future__ import annotations

from typing import Any

import numpy

from cupy import _core, _counts
from cupy._array import ndarray
from cupy.cuda import stream


def array(
    obj: Any,
    dtype: Any = None,
    copy: Any = True,
    order: Any = "K",
    subok: Any = False,
    ndmin: Any = 0,
    *,
    blocking: Any = False,
) -> ndarray:
    if not isinstance(obj, ndarray) and hasattr(obj, "__cuda_array_interface__"):
        from cupy._dlpack import from_interface

        obj = from_interface(obj)
    if isinstance(obj, ndarray):
        wanted = obj.dtype if dtype is None else dtype
        if copy:
            made = obj.copy() if wanted == obj.dtype and order == "C" else None
            made = obj.astype(wanted, order) if made is None else made
        else:
            made = obj.astype(wanted, order, copy=False)
        return made.reshape((1,) * max(ndmin - made.ndim, 0) + made.shape)
    if isinstance(obj, (list, tuple)) and _holds_arrays(obj):
        parts = [array(x, dtype) for x in obj]
        hosts = [_core.host_of(x) for x in parts]
        return _core.place(numpy.stack(hosts))
    stream._forbid_in_capture()
    host = numpy.array(obj, dtype=dtype, ndmin=ndmin)
    _core.get_dtype(host.dtype)
    if order in ("K", "A") and not host.flags.c_contiguous and host.flags.f_contiguous:
        order = "F"
    made = ndarray(host.shape, host.dtype, order="F" if order == "F" else "C")
    _counts.note("copy", "array", host.nbytes)
    _core.write(made, host, function="")
    return made


def _holds_arrays(obj: Any) -> bool:
    return any(
        isinstance(x, ndarray) or (isinstance(x, (list, tuple)) and _holds_arrays(x)) for x in obj
    )


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: Any = False
) -> ndarray:
    return array(a, dtype, bool(copy), order or "K")


def asanyarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: Any = False
) -> ndarray:
    return array(a, dtype, bool(copy), order or "K")


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    if isinstance(a, ndarray) and a.ndim and a.flags.c_contiguous and dtype in (None, a.dtype):
        return a  # whichever GPU is the current one
    made = array(a, dtype, False, "C")
    return made if made.ndim else made.reshape(1)


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    return array(a, dtype, False, "F")


def asnumpy(
    a: Any, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: Any = True
) -> Any:
    if isinstance(a, ndarray):
        return a.get(stream=stream, order=order, out=out, blocking=blocking)
    found = numpy.asarray(a, order=order)
    if out is None:
        return found
    out[...] = found
    return out


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def zeros(shape: Any, dtype: Any = float, order: Any = "C") -> ndarray:
    made = ndarray(shape, dtype, order=order)
    made.fill(0)
    return made


def ones(shape: Any, dtype: Any = float, order: Any = "C") -> ndarray:
    made = ndarray(shape, dtype, order=order)
    made.fill(1)
    return made


def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C") -> ndarray:
    if dtype is None:
        known = isinstance(fill_value, ndarray)
        dtype = fill_value.dtype if known else numpy.array(fill_value).dtype
    made = ndarray(shape, dtype, order=order)
    made[...] = fill_value
    return made


def _like(a: ndarray, dtype: Any, order: Any, subok: Any, shape: Any) -> ndarray:
    if subok is not None:
        raise TypeError("subok is not supported yet")
    if not isinstance(a, ndarray):
        raise TypeError(f"Unsupported type {type(a)}")
    if shape is not None:
        return ndarray(shape, a.dtype if dtype is None else dtype)
    host = numpy.empty_like(a._a, dtype=dtype, order=order)
    made = ndarray(host.shape, host.dtype)
    if host.size and host.strides != made.strides:
        order_of = sorted(range(host.ndim), key=lambda i: (-host.strides[i], i))
        packed = made._a.reshape([host.shape[i] for i in order_of])
        made._a = packed.transpose(numpy.argsort(order_of))
    return made


def empty_like(
    prototype: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    return _like(prototype, dtype, order, subok, shape)


def zeros_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    made = _like(a, dtype, order, subok, shape)
    made.fill(0)
    return made


def ones_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    made = _like(a, dtype, order, subok, shape)
    made.fill(1)
    return made


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: Any = None,
    shape: Any = None,
) -> ndarray:
    made = _like(a, dtype, order, subok, shape)
    made[...] = fill_value
    return made


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> ndarray:
    for part in (start, stop, step):
        if isinstance(part, (ndarray, numpy.ndarray)):
            raise TypeError(f"Unsupported type {type(part)}")
    if stop is None:
        start, stop = 0, start
    return _core.place(numpy.arange(start, stop, step, dtype))


def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: Any = True,
    retstep: Any = False,
    dtype: Any = None,
    axis: Any = 0,
) -> Any:
    made = numpy.linspace(start, stop, num, endpoint, dtype=dtype, axis=axis)
    return _core.place(made)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: Any = "C") -> ndarray:
    return _core.place(numpy.eye(N, M, k, dtype, order))


def identity(n: Any, dtype: Any = float) -> ndarray:
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> ndarray:
    return _core.place(numpy.tri(N, M, k, dtype))


def copy(a: Any, order: Any = "K") -> ndarray:
    return a.copy(order=order)


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = None) -> None:
    if not isinstance(dst, ndarray):
        raise TypeError(f"Argument 'dst' has incorrect type: {type(dst)}")
    if isinstance(src, numpy.ndarray) and src.ndim:
        raise TypeError(f"Unsupported type {type(src)}")
    value = _core.host_of(src) if isinstance(src, ndarray) else src
    if not numpy.can_cast(getattr(value, "dtype", type(value)), dst.dtype, casting):
        raise TypeError(f"Cannot cast {type(value)} to {dst.dtype} in {casting} casting mode")
    if where is None:
        _core.write(dst, value)
        return
    if not isinstance(where, ndarray):
        raise TypeError(f"Unsupported type {type(where)}")
    mask, host = _core.host_of(where), _core.host_of(dst)
    stream._submit(lambda: numpy.copyto(host, value, "unsafe", where=mask))


def take(a: Any, indices: Any, axis: Any = None, out: Any = None) -> ndarray:
    return a.take(indices, axis, out)


def broadcast_shapes(*args: Any) -> tuple[int, ...]:
    return numpy.broadcast_shapes(*args)


def broadcast_arrays(*args: Any) -> list[ndarray]:
    hosts = numpy.broadcast_arrays(*[_core.host_of(a) for a in args])
    return [a._view(h) for a, h in zip(args, hosts, strict=True)]


def einsum(*operands: Any, **kwargs: Any) -> ndarray:
    formula, *arrays = operands
    hosts = [_core.host_of(a) for a in arrays]
    return _core.place(numpy.einsum(formula, *hosts, **kwargs))


def result_type(*arrays_and_dtypes: Any) -> Any:
    return numpy.result_type(*[getattr(a, "dtype", a) for a in arrays_and_dtypes])


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    return numpy.may_share_memory(a._a, b._a)


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    raise NotImplementedError(
        "CuPy sorts the address of every element for this and waits for the GPU; "
        "may_share_memory compares bounds"
    )


def ndim(a: Any) -> int:
    return int(a.ndim)


def shape(a: Any) -> tuple[int, ...]:
    return tuple(a.shape)


def get_array_module(*args: Any) -> Any:
    import cupy

    return cupy if any(isinstance(a, ndarray) for a in args) else numpy


def get_default_memory_pool() -> Any:
    from cupy.cuda import memory

    return memory._default_pool


def get_default_pinned_memory_pool() -> Any:
    from cupy.cuda import pinned_memory

    return pinned_memory._pool


class GUFunc:
    """``cupy.matmul``."""

    __name__ = "cupy_matmul"

    def __call__(
        self,
        *args: Any,
        axes: Any = None,
        axis: Any = None,
        keepdims: bool = False,
        casting: Any = "same_kind",
        dtype: Any = None,
        signature: Any = None,
        order: Any = "K",
        out: Any = None,
    ) -> Any:
        if len(args) != 2:  # unlike a ufunc's, its output is taken by name only
            raise TypeError(
                "_try_fastcall_matmul() got multiple values for argument 'out'"
                if len(args) == 3
                else f"matmul takes 2 arguments but {len(args)} were given"
            )
        a, b = args
        for x, name in ((a, "a"), (b, "b")):
            if not isinstance(x, ndarray):
                raise TypeError(
                    f"Argument '{name}' has incorrect type (expected "
                    f"cupy._core.core._ndarray_base, got {type(x).__name__})"
                )
        left, right = _core.host_of(a), _core.host_of(b)
        if not left.ndim or not right.ndim:
            raise ValueError("matmul: input operand does not have enough dimensions")
        kind = numpy.result_type(left.dtype, right.dtype) if dtype is None else dtype
        kind = _core.get_dtype(kind)
        if kind == _core.bfloat16 and max(left.ndim, right.ndim) > 2:
            raise TypeError("batched bfloat16 products fail in CuPy (issue 10317)")
        wide = numpy.dtype("f") if kind.itemsize == 2 and kind.kind in "fV" else kind
        with numpy.errstate(all="ignore"):
            found = numpy.matmul(left.astype(wide), right.astype(wide)).astype(kind)
        if out is None:
            return _core.place(found)
        if out.shape != found.shape:
            raise ValueError(f"Output array has an invalid shape: {out.shape}")
        _core.write(out, found)
        return out


matmul = GUFunc()
