"""Linear algebra of a backend: NumPy's functions and CuPy's, and which matrices they failed for."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, lapack
from lucid_gpu.devices.blas import on_few_threads

Diagnosis = Callable[[Any], tuple[int, Any]]

SMALL = 48  # rows of a triangle that is worked on whole
LAUNCHED = 1024  # and on a GPU, where a product costs less than the launches of many


class LinAlgError(RuntimeError, np.linalg.LinAlgError):
    """A decomposition or a solution that does not exist, or was not found.

    PyTorch's is a RuntimeError; programs written in NumPy catch NumPy's.
    """


def call(name: str, where: device, *arrays: Any, **options: Any) -> Any:
    """``xp.linalg.name`` of a backend's arrays.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the library gave up, for one matrix of the batch or all.
    """
    if all(a.size for a in arrays):
        return backend(where).library("linalg", name, where, *arrays, **options)
    # libraries of GPUs refuse matrices of nothing, or give them other shapes
    host = [np.empty(a.shape, a.dtype) for a in arrays]
    result = backend(CPU).library("linalg", name, CPU, *host, **options)
    if isinstance(result, tuple):
        return tuple([backend(where).from_numpy(f, where) for f in result])
    return backend(where).from_numpy(np.asarray(result), where)


def each(
    name: str, where: device, diagnose: Diagnosis, *arrays: Any
) -> tuple[Any, list[int] | None]:
    """``call`` of matrices in the last two dimensions, and what was wrong with each.

    Returns
    -------
    (array, numbers)
        The numbers, one a matrix of the batch, are 0 or what ``diagnose`` says of the matrix, and
        with it its result. None where all went well.
    """
    try:
        return call(name, where, *arrays), None
    except np.linalg.LinAlgError:
        pass
    host = [backend(where).to_numpy(a) for a in arrays]
    flat = [a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:]) for a in host]
    result, numbers = np.empty_like(flat[-1]), []
    for i, matrices in enumerate(zip(*flat, strict=True)):
        try:
            result[i] = getattr(np.linalg, name)(*matrices)
            numbers.append(0)
        except np.linalg.LinAlgError:
            number, result[i] = diagnose(matrices[0])
            numbers.append(number)
    return backend(where).from_numpy(result.reshape(host[-1].shape), where), numbers


def inverted(where: device, array: Any) -> tuple[Any, list[int] | None]:
    """Inverses, and what was wrong with each matrix, as `each` says it."""
    if not lapack.usable(array):
        return each("inv", where, zero_pivot, array)
    factors, pivots, numbers = lapack.factored(array)
    inverses = lapack.inverted(factors, pivots)
    return inverses, numbers if lapack.spoilt(inverses, numbers) else None


def cholesky_gradient(where: device, L: Any, g: Any) -> Any:
    """``L^-H X L^-1``, where X is half of ``L^H g``'s lower triangle, with its mirror image.

    Only the diagonal of X may be other than Hermitian, which is added last. The rest by halves, as
    the factorization of a matrix of two by two blocks is differentiated (Murray, Differentiation of
    the Cholesky decomposition, 2016, 3), so that few products are of full size. Of ``g`` the lower
    triangle is read.
    """
    gradient = _hermitian_cholesky_gradient(where, L, g)
    xp = backend(where).xp
    if L.dtype.kind == "c":
        turns = xp.einsum("...ij,...ij->...j", L.conj(), g).imag[..., None, :]
        inverse = lower_inverse(where, L)
        gradient += (adjoint(inverse) * (turns * 0.5j).astype(L.dtype)) @ inverse
    return gradient


def _hermitian_cholesky_gradient(where: device, L: Any, g: Any) -> Any:
    xp = backend(where).xp
    gradient = xp.empty(L.shape, L.dtype)
    if not lapack.usable(L):
        leaf = SMALL if xp is np else LAUNCHED
        _write_cholesky_gradient(xp, L, g, gradient, leaf, functools.partial(_by_inverse, where))
        return gradient
    for matrices in zip(*map(lapack.each, (L, g, gradient)), strict=True):
        half = L.shape[-1] // 2
        on_few_threads(
            half**3, _write_cholesky_gradient, np, *matrices, SMALL, lapack.right_divisor
        )
    return gradient


def _triangle(xp: Any, n: int, real: Any) -> tuple[Any, Any]:
    """Where a lower triangle is, and half of what it counts beside its mirror image."""
    return xp.tri(n, dtype=bool), (0.5 - xp.eye(n) / 4).astype(real)


_kept_triangle = functools.cache(functools.partial(_triangle, np))


def _by_inverse(where: device, L: Any) -> Callable[[Any], Any]:
    inverse = lower_inverse(where, L)
    return lambda X: X @ inverse


def _write_cholesky_gradient(xp: Any, L: Any, g: Any, out: Any, leaf: int, over: Any) -> None:
    """``over(L)`` gives a function that multiplies by the inverse of L from the right."""
    n = L.shape[-1]
    if n <= leaf:
        kept, weights = (
            _kept_triangle(n, L.real.dtype) if xp is np else _triangle(xp, n, L.real.dtype)
        )
        inner, divide = xp.where(kept, adjoint(L) @ g, 0), over(L)
        out[...] = divide(adjoint(divide((inner + adjoint(inner)) * weights)))
        return
    first, last = slice(None, n // 2), slice(n // 2, None)
    here, below = (..., first, first), (..., last, first)
    rest = (..., last, last)
    _write_cholesky_gradient(xp, L[rest], g[rest], out[rest], leaf, over)
    cotangent = over(L[here])(g[below] - 2 * (out[rest] @ L[below]))
    out[below] = cotangent / 2
    out[..., first, last] = adjoint(out[below])
    inner = g[here] - adjoint(cotangent) @ L[below]
    _write_cholesky_gradient(xp, L[here], inner, out[here], leaf, over)


def adjoint(x: Any) -> Any:
    """Transposed and conjugated."""
    turned = x.swapaxes(-1, -2)
    return turned.conj() if turned.dtype.kind == "c" else turned


def quietly(formula: Callable[..., Any], *arrays: Any) -> Any:
    """A formula of NumPy's matrices: no warnings, and small products are not shared by threads."""
    with np.errstate(all="ignore"):
        return on_few_threads(max(arrays[0].shape[-2:]) ** 3, formula, *arrays)


def with_diagonal(x: Any, values: Any) -> Any:
    """NumPy's matrices with other numbers on their diagonals."""
    changed = x.copy()
    np.einsum("...ii->...i", changed)[...] = values
    return changed


def lower(x: Any, diagonal: int = 0) -> Any:
    """What lies on the diagonal and below in NumPy's matrices; zeros elsewhere."""
    return np.tril(x, diagonal)


def identity(n: int, d: Any) -> Any:
    """NumPy's unit matrix."""
    return np.eye(n, dtype=d)


def triangle_divided(A: Any, B: Any, kept: lapack.Triangle) -> Any:
    """``A^-1 B`` of NumPy's matrices by a triangle of each, whose diagonal counts."""
    if lapack.usable(A):
        return lapack.divided(A, B, kept)
    return each("solve", CPU, zero_pivot, np.triu(A) if kept.upper else np.tril(A), B)[0]


def lower_inverse(where: device, array: Any) -> Any:
    """Inverses of lower triangular matrices by halves, so that products do most of the work.

    Higham, Accuracy and Stability of Numerical Algorithms (2002), 14.2.2.
    """
    n, xp = array.shape[-1], backend(where).xp
    if n <= SMALL:
        inverse = call("inv", where, array)
        if xp is not np:
            return xp.tril(inverse)
        return np.where(_kept_triangle(n, inverse.real.dtype)[0], inverse, 0)
    first, last = slice(None, n // 2), slice(n // 2, None)
    inverse = xp.zeros_like(array)
    a = inverse[..., first, first] = lower_inverse(where, array[..., first, first])
    c = inverse[..., last, last] = lower_inverse(where, array[..., last, last])
    inverse[..., last, first] = -(c @ array[..., last, first] @ a)
    return inverse


def zero_pivot(matrix: Any) -> tuple[int, float]:
    """The first pivot, from 1, that is zero in an elimination with pivoting; NaN as the result."""
    rest = np.array(matrix)
    count = len(rest)
    for i in range(count):
        best = i + int(np.argmax(np.abs(rest[i:, i])))
        if rest[best, i] == 0:
            return i + 1, np.nan
        rest[[i, best]] = rest[[best, i]]
        rest[i + 1 :, i:] -= np.outer(rest[i + 1 :, i] / rest[i, i], rest[i, i:])
    return count, np.nan


def unfinished_factor(matrix: Any) -> tuple[int, Any]:
    """The order of the first leading minor that is not positive-definite, and what LAPACK leaves.

    The columns before it are those of a factor; on the diagonal stands the number whose root was
    not taken, and the rest is the matrix's own.
    """
    left = np.tril(matrix)
    for i, column in enumerate(left.T):
        pivot = left[i, i].real - np.vdot(left[i, :i], left[i, :i]).real
        if not pivot > 0:
            left[i, i] = pivot
            return i + 1, left
        left[i, i] = np.sqrt(pivot)
        column[i + 1 :] -= left[i + 1 :, :i] @ left[i, :i].conj()
        column[i + 1 :] /= left[i, i]
    return len(left), left


def eliminated(where: device, array: Any) -> tuple[Any, Any]:
    """LU factors with row pivots, in LAPACK's form, column by column over a whole batch.

    Neither NumPy nor CuPy offers LAPACK's own for batches.

    Returns
    -------
    (factors, pivots)
        The strict lower part holds L, the rest U; pivots count from 1, int32.
    """
    xp = backend(where).xp
    *batch, m, n = array.shape
    pivots = xp.empty((math.prod(batch), min(m, n)), "int32")
    if not array.size:
        return array.copy(), pivots.reshape(*batch, min(m, n))
    if lapack.usable(array) and m == n:
        factors, places, _ = lapack.factored(array.swapaxes(-1, -2))
        return np.ascontiguousarray(factors.swapaxes(-1, -2)), places.astype(np.int32)
    flat = array.reshape(-1, m, n).copy()
    each_matrix = xp.arange(len(flat))
    for i in range(min(m, n)):
        column = flat[:, i:, i]
        sizes = xp.abs(column.real) + xp.abs(column.imag)  # LAPACK's size of a complex number
        best = xp.argmax(sizes, axis=1) + i
        pivots[:, i] = best + 1
        rows = flat[each_matrix, best]  # a copy
        flat[each_matrix, best] = flat[:, i]
        flat[:, i] = rows
        pivot = flat[:, i, i, None]
        zero = pivot == 0
        flat[:, i + 1 :, i] /= xp.where(zero, xp.ones_like(pivot), pivot)
        flat[:, i + 1 :, i + 1 :] -= flat[:, i + 1 :, i, None] * flat[:, i, None, i + 1 :]
    return flat.reshape(array.shape), pivots.reshape(*batch, min(m, n))
