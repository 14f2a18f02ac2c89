"""cupy.linalg of the stand-in: CuPy's signatures over NumPy's arithmetic."""

from __future__ import annotations

from typing import Any

import cupyx
import numpy
from numpy.linalg import LinAlgError

from cupy import _core
from cupy._array import ndarray


def _run(name: str, *arrays: Any, **options: Any) -> Any:
    for a in arrays:
        if not isinstance(a, ndarray):
            raise LinAlgError("cupy.linalg only supports cupy.ndarray")
        if a.dtype == numpy.float16 or a.dtype.char not in "fdFD":
            raise TypeError(f"{a.dtype} is unsupported in linalg")
        if not a.size:
            raise NotImplementedError("CuPy's shapes for matrices of nothing are not NumPy's")
    host = [_core.host_of(a) for a in arrays]
    try:
        found = getattr(numpy.linalg, name)(*host, **options)
    except LinAlgError as error:
        if cupyx._linalg[-1] == "raise":
            raise LinAlgError(f"Error reported by {name} in cuSOLVER: {error}") from None
        found = numpy.full(host[-1].shape, numpy.nan, host[-1].dtype)
    if isinstance(found, tuple):
        return tuple([_core.place(f) for f in found])
    return _core.place(found)


def inv(a: Any) -> Any:
    return _run("inv", a)


def solve(a: Any, b: Any) -> Any:
    if b.ndim == 1 and a.shape[-1] == b.size:
        return _run("solve", a, b)
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError(
            "a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b"
        )
    return _run("solve", a, b)


def det(a: Any) -> Any:
    return _run("det", a)


def slogdet(a: Any) -> Any:
    return _run("slogdet", a)


def cholesky(a: Any) -> Any:
    return _run("cholesky", a)


def qr(a: Any, mode: Any = "reduced") -> Any:
    return _run("qr", a, mode=mode)


def svd(a: Any, full_matrices: Any = True, compute_uv: Any = True) -> Any:
    return _run("svd", a, full_matrices=full_matrices, compute_uv=compute_uv)


def eigh(a: Any, UPLO: Any = "L") -> Any:
    return _run("eigh", a, UPLO=UPLO)


def eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    return _run("eigvalsh", a, UPLO=UPLO)


def eig(a: Any) -> Any:
    return _run("eig", a)
