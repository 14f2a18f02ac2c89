"""cupyx.scipy.sparse of the stand-in: products of COO matrices, and CSR ones for `linalg`."""

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

    def tocsr(self) -> csr_matrix:
        from scipy.sparse import coo_matrix as of_host

        parts = [_core.host_of(x) for x in (self.data, self.row, self.col)]
        return csr_matrix(of_host((parts[0], tuple(parts[1:])), self.shape))

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


class csr_matrix:
    """SciPy's on the host: what the functions of `linalg` are given."""

    def __init__(self, arg1: Any) -> None:
        from scipy.sparse import csr_matrix as of_host

        self.host = of_host(_core.host_of(arg1) if isinstance(arg1, ndarray) else arg1)

    def tocsr(self) -> csr_matrix:
        return self

    def conj(self) -> csr_matrix:
        return csr_matrix(self.host.conj())

    @property
    def T(self) -> csr_matrix:
        return csr_matrix(self.host.T)
