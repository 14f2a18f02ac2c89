"""Constructors that NumPy does not hand on: they take tensors among what they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid_gpu.devices import room_of_array
from lucid_gpu.numpy.operands import as_tensor, element_type, first_tensor
from lucid_gpu.tensor import Tensor

__all__ = ["array", "asanyarray", "asarray", "ascontiguousarray"]


def array(object: Any, dtype: Any = None, *, copy: bool | None = True, **options: Any) -> Any:
    """`numpy.array`; a tensor of the same device where tensors are among ``object``.

    Parameters
    ----------
    object : array, number, Tensor, or nested lists of them
    dtype : optional
    copy : bool, optional
    **options
        ``order``, ``ndmin``, ``subok``, ``like``: as NumPy takes them.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> np.grad(lambda x: np.prod(np.array([x, 2 * x, 3.0])))(2.0)
    24.0
    """
    if first_tensor((object,)) is None:
        if _is_cupy(object):
            return object.astype(object.dtype if dtype is None else dtype, copy=bool(copy))
        return np.array(object, dtype, copy=copy, **options)
    found = as_tensor(object)
    if dtype is not None:
        found = found.to(element_type(dtype))
    if copy and found is object:
        found = found.clone()
    for _ in range(options.get("ndmin", 0) - found.ndim):
        found = found.unsqueeze(0)
    return found


def asarray(a: Any, dtype: Any = None, **options: Any) -> Any:
    """`numpy.asarray`; tensors and CuPy's arrays stay what they are."""
    return array(a, dtype, **{"copy": None, **options})


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    """`numpy.ascontiguousarray`, of tensors and CuPy's arrays too."""
    found = asarray(a, dtype)
    if isinstance(found, Tensor):
        return found.contiguous()
    return np.ascontiguousarray(found) if isinstance(found, np.ndarray) else found.copy()


def _is_cupy(value: Any) -> bool:
    return room_of_array(value) is not None and not isinstance(value, (np.ndarray, np.generic))
