"""The CPU's backend: NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lucid_gpu.device import CPU, device
from lucid_gpu.devices import blas, threads
from lucid_gpu.devices.background_matmul import BackgroundMatmul, worth_it
from lucid_gpu.devices.blas import SHARED_FROM, UNSHARED, UNSPLIT, matmul, on_few_threads
from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.loops import address
from lucid_gpu.devices.pool import aligned, pool, wrapped
from lucid_gpu.devices.port import OneDevice
from lucid_gpu.dtypes import dtype, float64

_WORK = {  # multiplications, in n^3; of the last ones those that a second thread hastens
    "cholesky": 1 / 6, "solve": 1 / 3, "det": 1 / 3, "slogdet": 1 / 3,
    "qr": 0.02, "eigh": 0.1, "eigvalsh": 0.1, "svd": 0.1,
}  # fmt: skip

FEW_INTEGERS = 1 << 10  # elements of a matrix: below it NumPy's loops are as good as BLAS


class NumpyBackend(OneDevice):
    """NumPy arrays, with large buffers recycled by a pool."""

    type = "cpu"
    xp: Any = np
    new = pool.empty

    def device_of(self, array: Any) -> device:
        return CPU

    def address(self, array: Any) -> int:
        try:
            return address(array)
        except TypeError:  # a subclass of NumPy's arrays
            pointer: int = array.__array_interface__["data"][0]
            return pointer

    def is_borrowed(self, array: Any) -> bool:
        return array.base is not None

    def empty(self, shape: Sequence[int], d: dtype, where: device) -> Any:
        return pool.empty(shape, d.numpy)

    def full(self, shape: Sequence[int], value: Any, d: dtype, where: device) -> Any:
        array = pool.empty(shape, d.numpy)
        array.fill(value)
        return array

    def arange(self, count: int, d: dtype, where: device) -> Any:
        return np.arange(count, dtype=d.numpy)

    def asarray(self, data: Any, d: dtype, where: device) -> Any:
        source = np.asarray(data)
        count = source.size
        memory = pool.empty(source.shape, d.numpy)
        if memory.base is None and count > 16:
            memory = wrapped(aligned(count * d.itemsize), source.shape, d.numpy)
        np.copyto(memory, source, casting="unsafe")
        return memory

    def to_numpy(self, array: Any) -> Any:
        return array

    def from_numpy(self, array: Any, where: device) -> Any:
        return array

    def item(self, array: Any) -> Any:
        return array.item()

    def matmul(self, a: Any, b: Any, d: dtype, out: Any = None) -> Any:
        if d.compute is not d:
            wide = matmul(a.astype(np.float32, copy=False), b.astype(np.float32, copy=False))
            return wide.astype(d.numpy) if out is None else _stored(wide, out)
        if a.dtype.kind in "iu" and _exact_as_floats(a, b):
            product = self.matmul(a.astype(np.float64), b.astype(np.float64), float64)
            return _stored(product.astype(np.int64).astype(d.numpy, copy=False), out)
        if a.ndim == b.ndim == 2:
            if not a.flags.forc:
                a = _for_blas(a)
            if not b.flags.forc:
                b = _for_blas(b)
            rows, columns = a.shape[0], b.shape[1]
            count = a.size * columns
            if count <= UNSHARED:
                return np.matmul(a, b, out)
            if out is None:
                out = pool.empty((rows, columns), d.numpy)
            if count <= UNSPLIT and rows > 1 < columns:
                return matmul(a, b, out)
            return on_few_threads(count, _on_all_threads, a, b, out)
        a, b = _for_blas(a), _for_blas(b)
        return on_few_threads(a.shape[-2] * a.shape[-1] * b.shape[-1], matmul, a, b, out)

    def matmul_of_rows(self, a: Any, b: Any, d: dtype) -> Any:
        return self.matmul(a.T, b, d)  # `joins_rows` is not said: they are matrices

    def matmul_in_background(self, a: Any, b: Any, d: dtype) -> BackgroundMatmul | None:
        """``a.T @ b``, which another thread begins, or None where that gains nothing."""
        if d.compute is not d or d.category < 2 or not worth_it(a.size * b.shape[1]):
            return None
        return BackgroundMatmul(
            _for_blas(a.T), _for_blas(b), pool.empty((a.shape[1], b.shape[1]), d.numpy)
        )

    def matmul_beside(self, a: Any, b: Any, d: dtype) -> Any:
        """A product of matrices while another one runs in the background: by this thread alone."""
        out = pool.empty((a.shape[0], b.shape[1]), d.numpy)
        return matmul(_for_blas(a), _for_blas(b), out)

    def library(self, module: str, name: str, where: device, *arrays: Any, **options: Any) -> Any:
        function = getattr(getattr(np, module), name)
        if module != "linalg":
            return function(*arrays, **options)
        work = _WORK.get(name, 1.0) * max(arrays[0].shape[-2:]) ** 3
        return on_few_threads(int(work), partial(function, **options), *arrays)

    def argsort(self, array: Any, dim: int) -> Any:
        from lucid_gpu.devices.ordering import stable_argsort

        return stable_argsort(array, dim)

    def synchronize(self) -> None:
        pass

    def host_record(self, count: int) -> tuple[Any, int]:
        memory = np.zeros(count, np.int64)
        return memory, memory.ctypes.data


def _stored(array: Any, out: Any) -> Any:
    if out is None:
        return array
    out[...] = array
    return out


def _exact_as_floats(a: Any, b: Any) -> bool:
    """Whether no sum of products of integers is too large for a float64, and so for BLAS."""
    if min(a.size, b.size) < FEW_INTEGERS:
        return False
    largest = [max(int(x.max()), -int(x.min())) for x in (a, b)]
    return largest[0] * largest[1] * a.shape[-1] < 1 << 53


def _on_all_threads(a: Any, b: Any, out: Any) -> Any:
    """Compute `a` @ `b` in as many parts as there are threads, as OpenBLAS does by itself."""
    count = threads.team.count
    if blas.mkl is None or count == 1 or a.size * b.shape[1] < SHARED_FROM:
        return matmul(a, b, out)
    rows = len(out) >= out.shape[1]
    parts = slices(max(out.shape), -(-max(out.shape) // count))
    work = [(a[i], b, out[i]) if rows else (a, b[:, i], out[:, i]) for i in parts]
    each(work, lambda part: matmul(*part))
    return out


def _for_blas(matrices: Any) -> Any:
    """Matrices whose rows or columns are dense: others NumPy multiplies without BLAS."""
    flags = matrices.flags
    if flags.c_contiguous or flags.f_contiguous and matrices.ndim == 2:
        return matrices
    (n, m), (rows, columns) = matrices.shape[-2:], matrices.strides[-2:]
    item = matrices.itemsize
    if n == 1 or m == 1 or (columns == item and rows >= m * item):
        return matrices
    return matrices if rows == item and columns >= n * item else np.ascontiguousarray(matrices)
