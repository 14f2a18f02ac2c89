"""Constructors that NumPy does not hand on: they take tensors among what they are made of."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from lucid_gpu.devices import backend_of_array
from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy.operands import alike, as_tensor, first_tensor
from lucid_gpu.ops.array_methods import laid_out
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["LISTS", "array", "asanyarray", "asarray", "ascontiguousarray", "c_", "of_lists", "r_"]

# functions of one array, which NumPy hands on for a tensor, and not for a list of tensors
LISTS = "amax amin append cumprod cumsum max mean median min prod ptp std sum var"


def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: Any = "K",
    ndmin: int = 0,
    **options: Any,
) -> Any:
    """`numpy.array`; a tensor of the same device where tensors are among ``object``.

    Parameters
    ----------
    object : array, number, Tensor, or nested lists of them
    dtype : optional
    copy : bool, optional
        False refuses to copy, None copies where it must.
    order, ndmin
        As NumPy takes them.
    **options
        What NumPy's function takes besides; of arrays of its own.

    Raises
    ------
    ValueError
        If ``copy`` is False and a copy is needed.
    TypeError
        For ``options`` where there are tensors.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.grad(lambda x: np.prod(np.array([x, 2 * x, 3.0])))(2.0)
    24.0
    """
    if first_tensor((object,)) is None and not _is_cupy(object):
        return np.array(object, dtype, copy=copy, order=order, ndmin=ndmin, **options)
    options.pop("subok", None)  # neither has subclasses
    if options:
        raise TypeError(f"numpy.array of tensors does not take {', '.join(options)}")
    if _is_cupy(object):
        kind = object.dtype if dtype is None else dtype
        made = object.astype(kind, order=order, copy=bool(copy))
        return made.reshape((1,) * (ndmin - made.ndim) + made.shape) if made.ndim < ndmin else made
    converted = as_tensor(object)
    if dtype is not None:
        converted = converted.to(element_type(dtype))
    converted = laid_out(converted, order)
    if copy is False and converted is not object:
        raise ValueError("numpy.array(copy=False) needs a copy; copy=None makes one where it must")
    if copy and converted is object:
        converted = converted.clone()
    for _ in range(ndmin - converted.ndim):
        converted = converted.unsqueeze(0)
    return converted


def asarray(a: Any, dtype: Any = None, **options: Any) -> Any:
    """`numpy.asarray`; tensors and CuPy's arrays stay what they are."""
    return array(a, dtype, **{"copy": None, **options})


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    """`numpy.ascontiguousarray`, of tensors and CuPy's arrays too."""
    converted = asarray(a, dtype)
    if isinstance(converted, Tensor):
        return converted.contiguous()
    return (
        np.ascontiguousarray(converted) if isinstance(converted, np.ndarray) else converted.copy()
    )


def _is_cupy(value: Any) -> bool:
    return backend_of_array(value) is not None and not isinstance(value, (np.ndarray, np.generic))


def of_lists(name: str) -> Any:
    """NumPy's function of that name, of lists of tensors too."""
    function = getattr(np, name)

    @functools.wraps(function)
    def of(a: Any, *args: Any, **kwargs: Any) -> Any:
        is_list = isinstance(a, (list, tuple)) and first_tensor(a) is not None
        return function(as_tensor(a) if is_list else a, *args, **kwargs)

    return of


class _Joined:
    """`numpy.r_` and `numpy.c_`, of tensors too: NumPy's own arranges numbers of elements."""

    def __init__(self, numpys: Any) -> None:
        self.numpys = numpys

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if first_tensor(items) is None:
            return self.numpys[key]
        directive: list[Any] = [item for item in items[:1] if isinstance(item, str)]
        parts = [np.r_[item] if isinstance(item, slice) else item for item in items]
        tensors = alike(*parts[len(directive) :])
        ends = np.cumsum([t.numel() for t in tensors])
        numbers = [
            np.arange(end - t.numel(), end).reshape(t.shape)
            for t, end in zip(tensors, ends, strict=True)
        ]
        return cat([t.reshape(-1) for t in tensors])[self.numpys[tuple(directive + numbers)]]


c_, r_ = _Joined(np.c_), _Joined(np.r_)
