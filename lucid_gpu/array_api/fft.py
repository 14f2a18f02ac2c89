"""The extension ``fft``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import fft as ours
from lucid_gpu.numpy.naming import named
from lucid_gpu.tensor import Tensor

__all__ = ["fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft"]
__all__ += ["irfft", "irfftn", "rfft", "rfftfreq", "rfftn"]

DOC = "``fft.{}`` of the standard."


def _along_an_axis(name: str) -> Callable[..., Tensor]:
    transform = getattr(ours, name)

    def function(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        transformed: Tensor = transform(x, n, axis, norm)
        return transformed

    return named(function, name, DOC)


def _along_axes(name: str) -> Callable[..., Tensor]:
    transform = getattr(ours, name)

    def function(
        x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Tensor:
        transformed: Tensor = transform(x, s, axes, norm)
        return transformed

    return named(function, name, DOC)


def _shifted(name: str) -> Callable[..., Tensor]:
    shift = getattr(ours, name)

    def function(x: Tensor, /, *, axes: Any = None) -> Tensor:
        shifted: Tensor = x.clone() if axes == () else shift(x, axes)
        return shifted

    return named(function, name, DOC)


def _frequencies(name: str) -> Callable[..., Tensor]:
    make = getattr(ours, name)

    def function(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
        frequencies: Tensor = make(n, d, dtype=dtype, device=device)
        return frequencies

    return named(function, name, DOC)


fft, ifft, rfft = map(_along_an_axis, ("fft", "ifft", "rfft"))
irfft, hfft, ihfft = map(_along_an_axis, ("irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_along_axes, ("fftn", "ifftn", "rfftn", "irfftn"))
fftshift, ifftshift = _shifted("fftshift"), _shifted("ifftshift")
fftfreq, rfftfreq = _frequencies("fftfreq"), _frequencies("rfftfreq")
