"""LU factors that are kept, and triangles, by the library in NumPy's wheel.

`numpy.linalg` factors a matrix again for every solution, and takes a triangle for any matrix. Its
OpenBLAS has functions that do not; they are called as C's. Where NumPy was built with another
library, `usable` says no and nobody comes here.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices.blas import library, on_few_threads
from lucid_gpu.devices.loops import address

__all__ = ["Triangle", "determinants", "divide", "divided", "each", "factored", "inverted"]
__all__ += ["right_divisor", "signed_logarithms", "solved", "spoilt", "triangle_of", "usable"]

FROM = 32  # rows from which calls for each matrix are worth it
BLOCK = 64  # rows that are looked at together
_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
_ROW_MAJOR, _LEFT, _UPPER, _PLAIN, _UNIT = 101, 141, 121, 111, 132  # numbers of CBLAS
_TRANSPOSED, _ADJOINT, _LOWER, _RIGHT, _GENERAL = 112, 113, 122, 142, 131


class Triangle(NamedTuple):
    """The part of a matrix that is read for the whole."""

    upper: bool
    unit: bool = False  # with ones on the diagonal, which is not read


_L, _U = Triangle(upper=True, unit=True), Triangle(upper=False)  # of factors of a transpose


class _Functions(NamedTuple):
    trsm: Any
    trsv: Any
    getrf: Any
    getri: Any
    integer: Any  # NumPy's type of the library's integers
    one: Any  # the number 1, as trsm takes it


@functools.cache
def _functions(kind: str) -> Any:
    """The functions for arrays of a type, as `numpy.dtype.char` names it, or None."""
    letter = _LETTERS[kind]
    for prefix in ("scipy_", ""):
        for suffix, integer in (("64_", np.int64), ("", np.int32)):
            names = [f"cblas_{letter}trsm", f"cblas_{letter}trsv"]
            names += [f"{letter}getrf_", f"{letter}getri_"]
            functions = [getattr(library, prefix + name + suffix, None) for name in names]
            if None not in functions:
                return _declared(functions, np.dtype(integer), kind)
    return None


def _declared(functions: list[Any], integer: Any, kind: str) -> _Functions:
    pointer, number = ctypes.c_void_p, np.ctypeslib.as_ctypes_type(integer)
    one: Any = np.ones(1, kind)
    scalar = {"f": ctypes.c_float, "d": ctypes.c_double}.get(kind, pointer)
    trsm, trsv, getrf, getri = functions
    flags = (ctypes.c_int,) * 4
    trsm.argtypes = (ctypes.c_int, *flags, number, number, scalar, *(pointer, number) * 2)
    trsv.argtypes = (*flags, number, *(pointer, number) * 2)
    getrf.argtypes, getri.argtypes = (pointer,) * 6, (pointer,) * 7
    for function in functions:
        function.restype = None
    return _Functions(trsm, trsv, getrf, getri, integer, 1.0 if kind in "fd" else one)


@functools.cache
def _works(kind: str) -> bool:
    """Do the functions give what they should?"""
    if _functions(kind) is None:
        return False
    matrix = np.array([[1, 2, 0], [3, 4, 1], [0.5, 0, 2]], kind)
    factors, pivots, numbers = factored(matrix)
    unit = np.eye(3, dtype=kind)
    inverses = solved(factors, pivots, unit), inverted(factors, pivots)
    return numbers == [0] and all(np.allclose(matrix @ f, unit, atol=1e-5) for f in inverses)


def usable(array: Any) -> bool:
    """Whether these matrices can be worked on here, and are large enough."""
    if array.shape[-1] < FROM or not array.size or type(array) is not np.ndarray:
        return False
    kind = array.dtype.char
    return library is not None and kind in _LETTERS and _works(kind)


# --- one matrix -----------------------------------------------------------------------------------


def triangle_of(matrix: Any) -> Triangle | None:
    """The triangle that holds all of a matrix without zeros on its diagonal, if one does."""
    if matrix[0, -1] == 0:
        triangle = Triangle(upper=False)
    elif matrix[-1, 0] == 0:
        triangle, matrix = Triangle(upper=True), matrix.T
    else:
        return None
    for i in range(0, len(matrix), BLOCK):
        rows = matrix[i : i + BLOCK]
        if rows[:, i + BLOCK :].any() or (rows[:, i : i + BLOCK] != 0)[_above(len(rows))].any():
            return None
    return triangle if matrix.diagonal().all() else None


@functools.cache
def _above(n: int) -> Any:
    """Where the elements above the diagonal are."""
    return np.triu(np.ones((n, n), bool), 1)


def divide(A: Any, B: Any, kept: Triangle, adjoint: bool = False, right: bool = False) -> None:
    """Write ``A^-1 B``, or ``B A^-1``, over ``B``, whose rows are dense; ``A`` is a triangle.

    With ``adjoint`` the triangle of ``A^H`` stands there, that of ``A`` being given.
    """
    if not B.size:
        return
    functions, item = _functions(B.dtype.char), B.itemsize
    upper, how = kept.upper, _ADJOINT if adjoint else _PLAIN
    (down, along), n = A.strides, len(A)
    if down == item and along >= n * item and not (adjoint and A.dtype.kind == "c"):
        A, upper, how = A.T, not upper, _PLAIN if adjoint else _TRANSPOSED
    elif along != item or down < n * item:
        A = np.ascontiguousarray(A)
    part = _UPPER if upper else _LOWER, how, _UNIT if kept.unit else _GENERAL
    operand = address(A), max(A.strides[0] // item, n)
    result = address(B), max(B.strides[0] // item, B.shape[1])
    if B.shape[1] == 1 and not right:
        functions.trsv(_ROW_MAJOR, *part, n, *operand, *result)
        return
    one, side = functions.one, _RIGHT if right else _LEFT
    on_few_threads(
        n * B.size // 2, functions.trsm, _ROW_MAJOR, side, *part, *B.shape,
        one if B.dtype.kind == "f" else address(one), *operand, *result,
    )  # fmt: skip


def right_divisor(L: Any) -> Any:
    """The function that gives ``X L^-1``."""

    def quotient(X: Any) -> Any:
        X = np.array(X, order="C")
        divide(L, X, Triangle(upper=False), right=True)
        return X

    return quotient


def _factor(matrix: Any, pivots: Any) -> int:
    """Write LU factors of the transpose over a matrix, by columns; the first pivot that is zero."""
    functions, n = _functions(matrix.dtype.char), len(matrix)
    sizes = np.array([n, 0], functions.integer)
    size = address(sizes)
    info = size + functions.integer.itemsize
    on_few_threads(  # a second thread hastens but a part of it
        n**3 // 20, functions.getrf, size, size, address(matrix), size, address(pivots), info
    )
    return int(sizes[1])


def _invert(factors: Any, pivots: Any) -> None:
    """Write the inverse over factors: that of the transpose by columns is it by rows."""
    functions, n = _functions(factors.dtype.char), len(factors)
    work = np.empty(n * BLOCK, factors.dtype)
    sizes = np.array([n, work.size, 0], functions.integer)
    size, item = address(sizes), functions.integer.itemsize
    on_few_threads(
        2 * n**3 // 3, functions.getri,
        size, address(factors), size, address(pivots), address(work), size + item, size + 2 * item,
    )  # fmt: skip
    if sizes[2]:
        factors.fill(np.nan)


def _order(pivots: Any) -> Any:
    """The order in which exchanges, one after another, leave the rows."""
    order = list(range(len(pivots)))
    for i, pivot in enumerate(pivots.tolist()):
        order[i], order[pivot - 1] = order[pivot - 1], order[i]
    return np.array(order)


def _substituted(factors: Any, pivots: Any, B: Any, adjoint: bool) -> Any:
    """``A^-1 B`` or ``A^-H B`` by factors of ``A^T = P L U``: by rows, ``L^T`` above ``U^T``."""
    order = _order(pivots)
    if adjoint:  # A^H = P conj(L) conj(U)
        X = B[order]
        divide(factors, X, _L, True)
        divide(factors, X, _U, True)
        return X
    Y, X = np.array(B, order="C"), np.empty(B.shape, B.dtype)
    divide(factors, Y, _U)
    divide(factors, Y, _L)
    X[order] = Y
    return X


# --- matrices in the last two dimensions ----------------------------------------------------------


def each(array: Any, rank: int = 2) -> Any:
    """An array as one dimension of such of a lower rank."""
    return array.reshape(math.prod(array.shape[:-rank]), *array.shape[-rank:])


def factored(array: Any) -> tuple[Any, Any, list[int]]:
    """LU factors of the transposes, pivots, and for each matrix the first pivot that is zero."""
    factors = np.array(array, order="C")
    pivots = np.zeros(array.shape[:-1], _functions(array.dtype.char).integer)
    pairs = zip(each(factors), each(pivots, 1), strict=True)
    return factors, pivots, [_factor(matrix, places) for matrix, places in pairs]


def solved(factors: Any, pivots: Any, B: Any, adjoint: bool = False) -> Any:
    """``A^-1 B`` or ``A^-H B`` by the factors of each matrix."""
    X = np.empty(B.shape, B.dtype)
    for i, out in enumerate(each(X)):
        out[...] = _substituted(each(factors)[i], each(pivots, 1)[i], each(B)[i], adjoint)
    return X


def divided(A: Any, B: Any, kept: Triangle, adjoint: bool = False) -> Any:
    """``A^-1 B`` or ``A^-H B`` by a triangle of each matrix."""
    X = np.array(B, order="C")
    for triangle, out in zip(each(A), each(X), strict=True):
        divide(triangle, out, kept, adjoint)
    return X


def spoilt(results: Any, numbers: list[int]) -> bool:
    """Write NaN over results of singular matrices, if there are any."""
    wrong = [i for i, number in enumerate(numbers) if number]
    if wrong:
        each(results)[wrong] = np.nan
    return bool(wrong)


def determinants(factors: Any, pivots: Any) -> Any:
    """Determinants by the factors of each matrix, as NumPy has them."""
    sign, logarithm = signed_logarithms(factors, pivots)
    with np.errstate(over="ignore", invalid="ignore"):
        return sign * np.exp(logarithm)


def signed_logarithms(factors: Any, pivots: Any) -> tuple[Any, Any]:
    """Signs of the determinants, and the logarithms of their absolute values."""
    diagonal = factors.diagonal(0, -2, -1)
    sizes = np.abs(diagonal)
    with np.errstate(divide="ignore"):
        logarithm = np.sum(np.log(sizes), -1)
    directions = np.where(sizes == 0, diagonal, diagonal / np.where(sizes == 0, 1, sizes))
    return np.prod(directions, -1) * _parity(factors, pivots), logarithm


def _parity(factors: Any, pivots: Any) -> Any:
    exchanges = np.count_nonzero(pivots != np.arange(1, pivots.shape[-1] + 1), axis=-1)
    return np.asarray(1 - exchanges % 2 * 2, factors.dtype)


def inverted(factors: Any, pivots: Any) -> Any:
    """Inverses by the factors of each matrix."""
    inverses = factors.copy()
    for matrix, places in zip(each(inverses), each(pivots, 1), strict=True):
        _invert(matrix, places)
    return inverses
