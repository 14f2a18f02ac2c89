"""`numpy.fft` on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu import fft as ours
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor, inexact
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.numpy.shapes import axis_of
from lucid_gpu.tensor import Tensor

__all__ = ["fft", "fft2", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift"]
__all__ += ["ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftn"]

DOC = "`numpy.fft.{}`."


def _taken(a: Any) -> Tensor:
    """Floating point numbers of at least four bytes."""
    a = inexact(as_tensor(a))
    return a if a.dtype.itemsize > 2 else a.float()


def _along_an_axis(name: str) -> Callable[..., Any]:
    transform = getattr(ours, name)

    @takes_out
    def function(
        a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None
    ) -> Tensor:
        small = as_tensor(a).dtype == dt.float16 and name in ("irfft", "hfft")
        a = _taken(a)
        n_ = a.shape[axis_of(axis, a.ndim)] if n is None else n
        if (n_ - 1 if name in ("irfft", "hfft") and n is None else n_) < 1:
            raise ValueError(f"Invalid number of FFT data points ({n_}) specified.")
        result: Tensor = transform(a, n, axis, norm)
        return result.to(dt.float16) if small else result

    return named(function, name, DOC)


def _along_axes(name: str, last: Any) -> Callable[..., Any]:
    transform = getattr(ours, name)

    @takes_out
    def function(
        a: Any, s: Any = None, axes: Any = last, norm: str | None = None, out: Any = None
    ) -> Tensor:
        result: Tensor = transform(_taken(a), s, axes, norm)
        return result

    return named(function, name, DOC)


def _shifted(name: str) -> Callable[..., Any]:
    shift = getattr(ours, name)

    def function(x: Any, axes: Any = None) -> Tensor:
        result: Tensor = as_tensor(x).clone() if axes == () else shift(as_tensor(x), axes)
        return result

    return named(function, name, DOC)


fft, ifft, rfft = map(_along_an_axis, ("fft", "ifft", "rfft"))
irfft, hfft, ihfft = map(_along_an_axis, ("irfft", "hfft", "ihfft"))
fftn, ifftn = _along_axes("fftn", None), _along_axes("ifftn", None)
rfftn, irfftn = _along_axes("rfftn", None), _along_axes("irfftn", None)
fft2, ifft2 = _along_axes("fft2", (-2, -1)), _along_axes("ifft2", (-2, -1))
rfft2, irfft2 = _along_axes("rfft2", (-2, -1)), _along_axes("irfft2", (-2, -1))
fftshift, ifftshift = _shifted("fftshift"), _shifted("ifftshift")
