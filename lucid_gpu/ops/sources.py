"""Tensors of other people's memory, and constructors that few programs call."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu.devices import resolve
from lucid_gpu.dtypes import as_dtype, get_default_dtype
from lucid_gpu.ops.arguments import shape_for, type_for
from lucid_gpu.ops.borrowed import from_array_shared
from lucid_gpu.ops.creation import _from_host, _type_between, empty, ends_of, shared, spaced, tensor
from lucid_gpu.ops.elementwise import to
from lucid_gpu.ops.strides import as_strided
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Convert an object to a tensor of its shape, without a copy if that is possible.

    Parameters
    ----------
    obj : Tensor, array, object with ``__dlpack__``, sequence or number
        The bytes of a buffer (bytes, bytearray, memoryview, array.array) are its elements.
    copy : bool, optional
        True copies, False refuses to; None does what is needed.
    requires_grad : bool, optional
        Whether gradients go to the result, and on to a tensor that requires them; by default
        where the object requires them.

    Raises
    ------
    ValueError
        If ``copy`` is False and the result cannot share the memory.
    RuntimeError
        If ``copy`` is False for a number.
    """
    if requires_grad is None:
        requires_grad = isinstance(obj, Tensor) and obj.requires_grad
        if requires_grad:
            warn_user(
                "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad "
                "instead of False. Pass requires_grad=False explicitly to get the old behavior and "
                "silence this warning.",
            )
    source = None if isinstance(obj, np.generic) else shared(obj)
    if isinstance(obj, (bytes, bytearray, memoryview, array)):
        kind = get_default_dtype() if dtype is None else dtype
        source = frombuffer(obj, dtype=kind) if len(obj) else None
    if source is None:
        if copy is False:
            if isinstance(obj, np.generic):
                raise RuntimeError(
                    "can't alias NumPy scalars. Either remove copy=False or transform it in a "
                    "ndarray."
                )
            raise ValueError(
                f"can't alias arbitrary sequence into a tensor: {type(obj).__name__} is copied"
            )
        return tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad)
    converted = to(source, dtype=dtype, device=device)
    if copy is False and converted is not source:
        raise ValueError(
            f"can't alias tensor with dtype '{source.dtype.name}' into dtype "
            f"'{converted.dtype.name}', on {source.device} and {converted.device}."
        )
    if copy and converted is source:
        converted = converted.clone()
    if requires_grad:
        return converted if converted.requires_grad else converted._mark()
    return converted.detach() if converted.requires_grad else converted


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A one-dimensional tensor that shares the memory of a Python buffer.

    Parameters
    ----------
    buffer : bytes, bytearray, memoryview, mmap, ...
    count : int
        How many elements; -1 takes all.
    offset : int
        Bytes to skip.

    Raises
    ------
    ValueError
        If the buffer has no such elements, and for anything but a buffer.
    """
    try:
        size = memoryview(buffer).nbytes
    except TypeError:
        raise ValueError(
            "object does not implement Python buffer protocol, got "
            f"{type(buffer).__name__}: torch.tensor(...) takes lists"
        ) from None
    d = as_dtype(dtype)
    if not size or not count:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({size} bytes) minus 1"
        )
    if count < 0 and (size - offset) % d.itemsize:
        raise ValueError(
            f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a "
            f"multiple of element size ({d.itemsize})"
        )
    if count > 0 and count * d.itemsize > size - offset:
        raise ValueError(
            f"requested buffer length ({count} * {d.itemsize} bytes) after offset ({offset} bytes) "
            f"must not be greater than actual buffer length ({size} bytes)"
        )
    array = np.frombuffer(buffer, d.numpy, count, offset)
    if not array.flags.writeable:
        warn_user(
            "The given buffer is not writable. Here its elements are copied, so writing the tensor "
            "leaves the buffer as it is; frombuffer(bytearray(buffer), ...) says so."
        )
        array = array.copy()
    view = from_array_shared(array)
    return view._mark() if requires_grad else view


@op
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A vector of ``base`` to powers evenly spaced from ``start`` to ``end``, both included.

    RuntimeError for negative ``steps``; NotImplementedError for bool.
    """
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = ends_of("logspace", start, end)
    d = _type_between("logspace", start, end, type_for(dtype, options.get("out")))
    if d.category < 2:  # PyTorch cuts what it is given
        start, end = int(start), int(end)
    array = np.power(float(base), spaced(start, end, steps))
    if d.category < 2:
        array = np.rint(array) if np.allclose(array, np.rint(array)) else np.trunc(array)
    array = shape_for(array, options.get("out"))
    return _from_host(array, d, resolve(device, options.get("out")), requires_grad, options)


@op
def range(
    start: float = 0,
    end: Any = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A vector of numbers from ``start`` to ``end``, included: `arange`, without it, is preferred.

    RuntimeError for a step that is zero or leads away from ``end``.
    """
    warn_user(
        "torch.range is deprecated and will be removed in a future release because its behavior is "
        "inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
        "values in [start, end)."
    )
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    dtype = type_for(dtype, options.get("out"))
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    array = start + np.arange(int((end - start) / step) + 1, dtype=np.float64) * step
    array = shape_for(array, options.get("out"))
    return _from_host(array, d, resolve(device, options.get("out")), requires_grad, options)


@op
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """Memory that is walked by strides, counted in elements; what it holds is not said.

    Parameters
    ----------
    size, stride : sequence of int
        The shape, and the distances of neighboring elements in each dimension, in elements.

    Raises
    ------
    RuntimeError
        If they are not equally many.
    """
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
            f"({len(stride)})"
        )
    reach = 1
    for n, s in zip(size, stride, strict=True):
        reach = 0 if not n or not reach else reach + (n - 1) * s
    memory = empty(reach, dtype=dtype, device=device, **options)
    view = as_strided(memory, tuple(size), tuple(stride)).detach()
    return view._mark() if requires_grad else view


def from_file(
    filename: Any,
    shared: bool = False,
    size: int = 0,
    *,
    dtype: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A one-dimensional tensor on the memory of a file.

    Parameters
    ----------
    filename : str or path
    shared : bool
        Whether writes go to the file, which is then made or made longer where needed; else the
        file stays as it is.
    size : int
        How many elements.
    **options
        As in `zeros`.

    Raises
    ------
    RuntimeError
        For a file that cannot be opened, or that is too small and not ``shared``.
    """
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    wanted = size * d.itemsize
    try:
        with open(filename, "a+b" if shared else "rb") as file:
            held = file.seek(0, 2)
            if held < wanted and not shared:
                raise RuntimeError(
                    f"file <{filename}> size <{held}> is smaller than the required mapping size "
                    f"<{wanted}>"
                )
            if held < wanted:
                file.truncate(wanted)
    except OSError as error:
        mode = "read-write" if shared else "read-only"
        raise RuntimeError(
            f"unable to open file <{filename}> in {mode} mode: {error.strerror} ({error.errno})"
        ) from None
    if not size:
        return empty(0, dtype=d, requires_grad=requires_grad, **options)
    memory = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(wanted,))
    view = from_array_shared(memory.view(np.ndarray).view(d.numpy))
    return view._mark() if requires_grad else view


@op
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """Memory in which the dimensions lie in another order, the outermost first.

    Parameters
    ----------
    size : sequence of int
        The shape.
    physical_layout : sequence of int
        The dimensions in the order in which they lie.
    **options
        As in `empty_strided`.

    Raises
    ------
    RuntimeError
        If ``physical_layout`` does not name each dimension once.
    """
    rank, lie = len(size), list(physical_layout)
    if len(lie) != rank:
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {rank} is not equal to len(physical_layout) = {len(lie)}"
        )
    for d in lie:
        if not 0 <= d < rank:
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {rank - 1}, but got {d}) in "
                "physical_layout"
            )
    if len(set(lie)) < rank:
        raise RuntimeError(f"Duplicate dim not allowed: physical_layout is {lie}")
    strides, step = [1] * rank, 1
    for d in reversed(lie):
        strides[d], step = step, step * max(size[d], 1)
    made: Tensor = empty_strided(size, strides, **options)
    return made


@op
def new_empty_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any
) -> Tensor:
    """`empty_strided` of the tensor's type and device."""
    return empty_strided(size, stride, **{"dtype": self.dtype, "device": self.device, **options})


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Each element replaced by what a Python function makes of it: slow, and on the CPU only."""
    return map_(self, self, lambda own, _: callable(own), "apply_")


def map_(self: Tensor, tensor: Tensor, callable: Any, name: str = "map_") -> Tensor:
    """Each element replaced by what a function makes of it and of another tensor's.

    TypeError for tensors on a GPU, and two types; RuntimeError for tensors that require grad.
    """
    if self.device.type != "cpu" or tensor.device.type != "cpu":
        raise TypeError(f"{name} is only implemented on CPU tensors")
    if self.requires_grad or tensor.requires_grad:
        _refuse_history(name)
    if tensor.dtype is not self.dtype:
        raise TypeError(f"{name}: expected {self.dtype.name} for 'other' (got {tensor.dtype.name})")
    other = tensor.expand(self.shape).reshape(-1).tolist()
    made = [callable(a, b) for a, b in zip(self.reshape(-1).tolist(), other, strict=True)]
    for value in made:
        if not any(hasattr(value, f"__{kind}__") for kind in ("float", "index", "complex")):
            raise TypeError(f"must be real number, not {type(value).__name__}")
    values = np.array(made).reshape(tuple(self.shape)).astype(self.dtype.numpy)
    return self._write(from_array_shared(values), name)


def _refuse_history(name: str) -> None:
    raise RuntimeError(
        f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
    )


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:
    """Each element replaced by what a function makes of it and of two other tensors'.

    TypeError for tensors on a GPU, and two types; RuntimeError for tensors that require grad.
    """
    if y.requires_grad:
        _refuse_history("map2_")
    rest = iter(y.expand(self.shape).reshape(-1).tolist())
    return map_(self, x, lambda own, a: callable(own, a, next(rest)), "map2_")


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `nn.Module.load_state_dict` exchanges a parameter or buffer for, where it is set to.

    ``other``, of the state dict, itself if ``assign``; else this one after a copy of it. A class
    that overrides this returns another object than the two. See
    `lucid_gpu.__future__.set_swap_module_params_on_conversion`.
    """
    if assign:
        return other.detach()
    return self.copy_(other).detach()


METHODS = (new_empty_strided, apply_, map_, map2_, module_load)
FUNCTIONS = (asarray, frombuffer, from_file, logspace, range, empty_permuted, empty_strided)
