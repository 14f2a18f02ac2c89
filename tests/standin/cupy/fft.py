"""cupy.fft of the stand-in: CuPy's signatures over NumPy's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from cupy import _core
from cupy._array import ndarray


def _run(name: str, a: Any, *rest: Any) -> Any:
    if not isinstance(a, ndarray):
        raise TypeError(f"The input array a must be a cupy.ndarray: {type(a)}")
    if a.dtype == _core.bfloat16:
        raise TypeError("cuFFT has no bfloat16")
    if a.dtype == numpy.float16:
        a = a.astype("float32")
    return _core.place(getattr(numpy.fft, name)(_core.host_of(a), *rest))


def _one(name: str) -> Callable[..., Any]:
    def transform(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Any:
        return _run(name, a, n, axis, norm)

    transform.__name__, transform.__module__ = name, "cupy.fft"
    return transform


fft, ifft, rfft, irfft = _one("fft"), _one("ifft"), _one("rfft"), _one("irfft")
hfft, ihfft = _one("hfft"), _one("ihfft")


def _many(name: str) -> Callable[..., Any]:
    def transform(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
        return _run(name, a, s, axes, norm)

    transform.__name__, transform.__module__ = name, "cupy.fft"
    return transform


fftn, ifftn, rfftn, irfftn = _many("fftn"), _many("ifftn"), _many("rfftn"), _many("irfftn")
