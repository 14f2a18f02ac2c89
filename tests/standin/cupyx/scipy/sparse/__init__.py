"""cupyx.scipy.sparse of the stand-in: products of COO matrices."""

from __future__ import annotations

from typing import Any

import numpy
from cupy import _core, ndarray


class coo_matrix:
    """As much as a product needs; the types are those cuSPARSE multiplies."""

    def __init__(self, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False) -> None:
        values, (rows, columns) = arg1
        for x in (values, rows, columns):
            if not isinstance(x, ndarray):
                raise TypeError(f"Unsupported type {type(x)}")
        if values.dtype.char not in "?fdFD":
            raise ValueError("Only bool, float32, float64, complex64 and complex128 are supported.")
        self.data, self.row, self.col, self.shape = values, rows, columns, tuple(shape)

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, ndarray):
            raise TypeError(f"Unsupported type {type(other)}")
        if other.dtype != self.data.dtype:
            kind = numpy.result_type(other.dtype, self.data.dtype)
        else:
            kind = other.dtype
        rows, columns, values, dense = (
            _core.host_of(x) for x in (self.row, self.col, self.data, other)
        )
        total = numpy.zeros((self.shape[0], *dense.shape[1:]), kind)
        shape = (-1,) + (1,) * (dense.ndim - 1)
        with numpy.errstate(all="ignore"):
            numpy.add.at(total, rows, values.reshape(shape) * dense[columns])
        return _core.place(total)
