"""cupy.ndarray over host memory that only its own functions can reach."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy

from cupy import _core, _counts, _indexing
from cupy.cuda import memory, runtime, stream
from cupy.cuda.device import Device


class ndarray:
    """A device array.

    ``_a`` is the memory as NumPy sees it, ``_mem`` keeps it from being given back to the pool.
    """

    __slots__ = ("__weakref__", "_a", "_mem", "base")
    __array_priority__ = 100
    _a: Any
    _mem: Any
    base: Any

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: Any = None,
        strides: Any = None,
        order: Any = "C",
    ) -> None:
        if order not in ("C", "F", None):
            raise ValueError(f"order not understood. order={order}")
        if strides is not None and memptr is None:
            raise ValueError("memptr is required if strides is given.")
        shape = (shape,) if not hasattr(shape, "__iter__") else tuple(shape)
        shape = tuple([int(n) for n in shape])
        if any(n < 0 for n in shape):
            raise ValueError("Negative dimensions are not allowed")
        dtype = _core.get_dtype(dtype)
        size = dtype.itemsize
        for n in shape:
            size *= n
        self.base = None
        if memptr is None:
            memptr = memory.alloc(size)
        self._mem = memptr.mem
        if not self._mem.size:
            self._a = numpy.empty(shape, dtype, order or "C")
            return
        if hasattr(self._mem, "_chunk"):
            buffer, start = self._mem._chunk._all, self._mem._chunk._start
        elif hasattr(self._mem, "_all"):
            buffer, start = self._mem._all, self._mem._start
        else:
            buffer, start = _core.bytes_at(self._mem.ptr, self._mem.size), 0
        offset = start + memptr.ptr - self._mem.ptr
        self._a = numpy.ndarray(shape, dtype, buffer, offset, strides, order or "C")

    def _view(self, host: Any) -> ndarray:
        """Another look at the same memory."""
        made = object.__new__(ndarray)
        made._a, made._mem = host, self._mem
        made.base = self if self.base is None else self.base
        return made

    # --- what it is -------------------------------------------------------------------------------

    @property
    def data(self) -> Any:
        if not self._mem.ptr:
            return memory.MemoryPointer(self._mem, 0)
        address = self._a.__array_interface__["data"][0]
        return memory.MemoryPointer(self._mem, address - self._mem.ptr)

    @property
    def dtype(self) -> Any:
        return self._a.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._a.shape
        return shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        changed = self._a.view()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                changed.shape = shape
            except AttributeError as error:
                raise AttributeError("incompatible shape") from error
        self._a = changed

    @property
    def strides(self) -> tuple[int, ...]:
        strides: tuple[int, ...] = self._a.strides
        return strides

    @property
    def size(self) -> int:
        return int(self._a.size)

    @property
    def ndim(self) -> int:
        return int(self._a.ndim)

    @property
    def itemsize(self) -> int:
        return int(self._a.itemsize)

    @property
    def nbytes(self) -> int:
        return int(self._a.nbytes)

    @property
    def flags(self) -> Any:
        return Flags(self)

    @property
    def device(self) -> Any:
        return Device(self._mem.device_id if self._mem.device_id >= 0 else runtime.getDevice())

    @property
    def T(self) -> ndarray:
        return self if self.ndim < 2 else self._view(self._a.T)

    @property
    def mT(self) -> ndarray:
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return self._view(self._a.swapaxes(-1, -2))

    @property
    def flat(self) -> Any:
        raise NotImplementedError("the stand-in has no flatiter")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": stream.get_current_stream().ptr or runtime.streamLegacy,
            "version": 3,
            "strides": None if self._a.flags.c_contiguous else self.strides,
            "data": (self.data.ptr if self.size else 0, False),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        from cupy import _dlpack

        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("unsupported device requested.")
        if copy is True:
            raise BufferError("copy=True only supported for copy to CPU.")
        return _dlpack.export(self, stream, max_version)

    # --- to the host ------------------------------------------------------------------------------

    def get(
        self, stream: Any = None, order: Any = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        from cupy.cuda import stream as streams

        if out is not None:
            if not isinstance(out, numpy.ndarray):
                raise TypeError("Only numpy.ndarray can be obtained from cupy.ndarray")
            if self.dtype != out.dtype:
                raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
            if self.shape != out.shape:
                raise ValueError(
                    f"Shape mismatch. Expected shape: {self.shape}, actual shape: {out.shape}"
                )
        if order == "A":
            order = "F" if self._a.flags.f_contiguous and not self._a.flags.c_contiguous else "C"
        if out is None:
            out = numpy.empty(self.shape, self.dtype, order)
        if self.size == 0:
            return out
        ptr = (stream or streams.get_current_stream()).ptr
        streams._forbid_in_capture()
        host, taken = self._a, out
        runtime._make_context()
        streams._submit(lambda: numpy.copyto(taken, host), ptr)
        if blocking:
            _counts.note("fetch", "get", self.nbytes)
            _counts.note("wait", "get")
            streams._drain(ptr)
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        from cupy.cuda import stream as streams

        if not isinstance(arr, numpy.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self._a.flags.c_contiguous or self._a.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        host, given = self._a, arr
        _counts.note("copy", "set", arr.nbytes)
        ptr = (stream or streams.get_current_stream()).ptr
        streams._submit(lambda: numpy.copyto(host, given), ptr)

    def item(self) -> Any:
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        found: bytes = self.get().tobytes(order)
        return found

    def dumps(self) -> bytes:
        return pickle.dumps(self, -1)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __bool__(self) -> bool:
        if self.size == 0:
            warnings.warn(
                "The truth value of an empty array is ambiguous. Returning False, but in future "
                "this will result in an error. Use `array.size > 0` to check that an array is not "
                "empty.",
                DeprecationWarning,
                stacklevel=2,
            )
            return False
        if self.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. "
                "Use a.any() or a.all()"
            )
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __bytes__(self) -> bytes:
        return bytes(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, format_spec: str) -> str:
        return format(self.get(), format_spec)

    def __reduce__(self) -> Any:
        from cupy import array

        return array, (self.get(),)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        with self.device:
            return self.copy()

    # --- other forms of it ------------------------------------------------------------------------

    def astype(
        self, dtype: Any, order: Any = "K", casting: Any = None, subok: Any = None, copy: Any = True
    ) -> ndarray:
        if casting is not None:
            raise TypeError("casting is not supported yet")
        if subok is not None:
            raise TypeError("subok is not supported yet")
        dtype = _core.get_dtype(dtype)
        host = _core.host_of(self)
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", numpy.exceptions.ComplexWarning)
            changed = host.astype(dtype, order or "K", "unsafe", False, False)
            if changed is host:
                if not copy:
                    return self
                changed = host.astype(dtype, order or "K", "unsafe", False, True)
        return _like_host(changed)

    def copy(self, order: Any = "C") -> ndarray:
        here = runtime.getDevice()
        if self.size == 0 or self._mem.device_id == here:
            return self.astype(self.dtype, order)
        if not (self._a.flags.c_contiguous or self._a.flags.f_contiguous):
            with self.device:
                return self.astype(self.dtype, "C")._moved()
        return self._moved()

    def _moved(self) -> ndarray:
        """The same elements on the current device."""
        stream._drain_device(self._mem.device_id)
        return _like_host(self._a)

    def view(self, dtype: Any = None, type: Any = None) -> ndarray:
        if dtype is None:
            return self._view(self._a.view())
        return self._view(self._a.view(_core.get_dtype(dtype)))

    def fill(self, value: Any) -> None:
        if isinstance(value, numpy.ndarray):
            if value.shape != ():
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            value = value.item()
        if not isinstance(value, _core.SCALARS):
            _core.refuse(value)
        _core.check_device(self)
        with numpy.errstate(all="ignore"):
            value = numpy.asarray(value).astype(self.dtype)
        if value or not self._a.flags.c_contiguous:
            _core.write(self, value)
            return
        _counts.note("memset", "fill", self.nbytes)
        _core.write(self, value, function="")

    def reduced_view(self, dtype: Any = None) -> ndarray:
        return self._view(self._a.reshape(-1)) if self._a.flags.c_contiguous else self

    # --- indices ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, slices: Any) -> ndarray:
        return _indexing.getitem(self, slices)

    def __setitem__(self, slices: Any, value: Any) -> None:
        _indexing.setitem(self, slices, value)

    def scatter_add(self, slices: Any, value: Any) -> None:
        _indexing.scatter(self, slices, value, "add")

    def scatter_max(self, slices: Any, value: Any) -> None:
        _indexing.scatter(self, slices, value, "max")

    def scatter_min(self, slices: Any, value: Any) -> None:
        _indexing.scatter(self, slices, value, "min")

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> ndarray:
        return _indexing.take(self, indices, axis, out)

    # --- how NumPy asks ---------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        import cupy

        inout = inputs
        if "out" in kwargs:
            out = kwargs["out"]
            if len(out) != 1:
                raise ValueError("The 'out' parameter must have exactly one array value")
            inout += out
            kwargs["out"] = out[0]
        own = getattr(cupy, ufunc.__name__, None)
        if own is not None and method != "__call__":
            own = getattr(own, method, None)
        if own is None:
            return NotImplemented
        for x in inout:
            known = isinstance(x, (*_core.SCALARS, ndarray, numpy.ndarray))
            if not known and not _core.is_like(x):
                return NotImplemented
        if ufunc.__name__ in _COMPARISONS:
            inputs = tuple(
                [x.item() if isinstance(x, numpy.ndarray) and x.ndim == 0 else x for x in inputs]
            )
        return own(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        import cupy

        module: Any = cupy
        for part in func.__module__.split(".")[1:]:
            module = getattr(module, part, None)
        own = getattr(module, func.__name__, None)
        if own is None or own is func:
            return NotImplemented
        if any(t not in (ndarray, numpy.ndarray) for t in types):
            return NotImplemented
        return own(*args, **kwargs)

    __hash__ = None


_COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")


class Flags:
    """``flags`` with what CuPy's have."""

    def __init__(self, array: ndarray) -> None:
        self.c_contiguous = bool(array._a.flags.c_contiguous)
        self.f_contiguous = bool(array._a.flags.f_contiguous)
        self.owndata = array.base is None

    @property
    def fnc(self) -> bool:
        return self.f_contiguous and not self.c_contiguous

    @property
    def forc(self) -> bool:
        return self.f_contiguous or self.c_contiguous

    def __getitem__(self, name: str) -> bool:
        found: bool = getattr(self, name.lower())
        return found


def _like_host(host: Any) -> ndarray:
    """A new array with a host array's elements and order of dimensions."""
    made = ndarray(host.shape, host.dtype)
    order = sorted(range(host.ndim), key=lambda i: (-abs(host.strides[i]), i))
    if host.size and order != list(range(host.ndim)):
        shape = [host.shape[i] for i in order]
        back = numpy.argsort(order)
        made._a = made._a.reshape(shape).transpose(back)
    _core.write(made, host)
    return made


def _operator(name: str, ufunc_name: str) -> None:
    import cupy

    own, numpys = getattr(cupy, ufunc_name), getattr(numpy, ufunc_name)

    def forward(self: ndarray, other: Any) -> Any:
        if isinstance(other, ndarray):
            return own(self, other)
        if _yields(self, other):
            return NotImplemented
        if ufunc_name in ("equal", "not_equal"):
            kind = type(other)
            plain = kind.__eq__ is object.__eq__
            if ufunc_name == "not_equal":
                plain = plain and kind.__ne__ is object.__ne__
            if plain or other is None:  # never equal to an element
                return cupy.full(self.shape, ufunc_name == "not_equal", dtype=bool)
        return numpys(self, other)  # which asks every operand, `self` first

    def reflected(self: ndarray, other: Any) -> Any:
        return own(other, self)

    def in_place(self: ndarray, other: Any) -> Any:
        return own(self, other, self)

    setattr(ndarray, f"__{name}__", forward)
    if ufunc_name not in _COMPARISONS:
        setattr(ndarray, f"__r{name}__", reflected)
        if name not in ("divmod", "matmul"):
            setattr(ndarray, f"__i{name}__", in_place)


def _yields(self: Any, other: Any) -> bool:
    """Whether an operator leaves the work to the other operand's: `_should_use_rop` of CuPy's.

    The priority counts only where the other has no ``__array_ufunc__``, which is looked up on the
    operand itself, not on its class as NumPy does.
    """
    theirs = getattr(other, "__array_ufunc__", _yields)
    if theirs is not _yields:
        return theirs is None
    mine = getattr(self, "__array_priority__", 0)
    return bool(mine < getattr(other, "__array_priority__", 0))


def install() -> None:
    """Give the class its operators and the methods that are functions too."""
    import cupy

    for name, ufunc_name in {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
        "floordiv": "floor_divide", "mod": "remainder", "divmod": "divmod", "pow": "power",
        "lshift": "left_shift", "rshift": "right_shift", "and": "bitwise_and",
        "or": "bitwise_or", "xor": "bitwise_xor", "matmul": "matmul", "lt": "less",
        "le": "less_equal", "eq": "equal", "ne": "not_equal", "gt": "greater",
        "ge": "greater_equal",
    }.items():  # fmt: skip
        _operator(name, ufunc_name)
    for name, ufunc_name in {
        "neg": "negative", "abs": "absolute", "invert": "invert",
    }.items():  # fmt: skip
        setattr(ndarray, f"__{name}__", lambda self, f=ufunc_name: getattr(cupy, f)(self))
    ndarray.__pos__ = lambda self: self
