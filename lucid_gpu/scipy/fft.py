"""`scipy.fft` with derivatives: transforms are linear, and their adjoints are such transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu import fft as ours
from lucid_gpu.devices import device_of, scipy
from lucid_gpu.numpy.operands import as_tensor, inexact
from lucid_gpu.ops.fourier import resized
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.shape import movedim
from lucid_gpu.scipy.rows import composed, linear, others
from lucid_gpu.tensor import Tensor

__all__ = ["dct", "dctn", "dst", "dstn", "fft", "fft2", "fftn", "fftshift", "fht", "hfft"]
__all__ += ["hfft2", "hfftn", "idct", "idctn", "idst", "idstn", "ifft", "ifft2", "ifftn"]
__all__ += ["ifftshift", "ifht", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft"]
__all__ += ["rfft2", "rfftn"]


def _taken(x: Any) -> Tensor:
    """Return `x` in floating point numbers of at least four bytes."""
    x = inexact(as_tensor(x))
    return x if x.dtype.itemsize > 2 else x.float()


def _entered(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    return composed("fft")(named(function, name, doc))


def _along_an_axis(name: str) -> Callable[..., Tensor]:
    transform = getattr(ours, name)

    def function(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
        result: Tensor = transform(_taken(x), n, axis, norm)
        return result

    doc = f"Return `scipy.fft.{name}` of `x` along `axis`, of `n` numbers, scaled as `norm` says."
    return _entered(function, name, doc)


def _along_axes(name: str) -> Callable[..., Tensor]:
    transform, last = getattr(ours, name), (-2, -1) if name.endswith("2") else None

    def function(x: Any, s: Any = None, axes: Any = last, norm: str | None = None) -> Tensor:
        result: Tensor = transform(_taken(x), s, axes, norm)
        return result

    doc = f"Return `scipy.fft.{name}` of `x` over `axes`, of sizes `s`, scaled as `norm` says."
    return _entered(function, name, doc)


def _shifted(name: str) -> Callable[..., Tensor]:
    shift = getattr(ours, name)

    def function(x: Any, axes: Any = None) -> Tensor:
        result: Tensor = shift(as_tensor(x), axes)
        return result

    return _entered(function, name, f"Return `scipy.fft.{name}` of `x`: `axes` rolled by half.")


fft, ifft, rfft = map(_along_an_axis, ("fft", "ifft", "rfft"))
irfft, hfft, ihfft = map(_along_an_axis, ("irfft", "hfft", "ihfft"))
fft2, ifft2, rfft2 = map(_along_axes, ("fft2", "ifft2", "rfft2"))
irfft2, hfft2, ihfft2 = map(_along_axes, ("irfft2", "hfft2", "ihfft2"))
fftn, ifftn, rfftn = map(_along_axes, ("fftn", "ifftn", "rfftn"))
irfftn, hfftn, ihfftn = map(_along_axes, ("irfftn", "hfftn", "ihfftn"))
fftshift, ifftshift = map(_shifted, ("fftshift", "ifftshift"))

# --- cosines and sines ----------------------------------------------------------------------------

INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}  # as a type, and up to a factor the transpose
TURNED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
# By kind and type: the places that count otherwise where it is transposed, by which factors before
# and after; not where it is orthogonal.
WEIGHTS: dict[tuple[str, int], tuple[Any, float, float]] = {
    ("dct", 1): (slice(1, -1), 0.5, 2.0),
    ("dct", 2): (slice(0, 1), 2.0, 1.0),
    ("dct", 3): (slice(0, 1), 1.0, 0.5),
    ("dst", 2): (slice(-1, None), 2.0, 1.0),
    ("dst", 3): (slice(-1, None), 1.0, 0.5),
}


def _weighted(x: Any, places: Any, factor: float) -> Any:
    x = x.copy()
    x[..., places] *= factor
    return x


def _library(x: Any, kind: str, type: int, norm: str | None) -> Any:
    return scipy.function(device_of(x).type, f"fft.{kind}")(x, type=type, norm=norm)


def _transposed(x: Any, kind: str, type: int, norm: str | None) -> Any:
    if norm == "ortho" or (kind, type) not in WEIGHTS:
        return _library(x, kind, INVERSE[type], norm)
    places, before, after = WEIGHTS[kind, type]
    turned = _library(_weighted(x, places, before), kind, INVERSE[type], norm)
    return _weighted(turned, places, after)


_last = linear("fft.dct", _library, _transposed, leads=True)


def _cosines(kind: str, inverse: bool) -> Callable[..., Tensor]:
    def function(
        x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
    ) -> Tensor:
        if type not in INVERSE or norm not in TURNED:
            raise ValueError(f"type is one of {[*INVERSE]}, norm of {[*TURNED]}: got {type, norm}")
        x = movedim(_taken(x), axis, -1)
        x = x if n is None else resized(x, -1, n)
        settings = (INVERSE[type], TURNED[norm]) if inverse else (type, norm)
        return movedim(_last(x, kind, *settings), -1, axis)

    name = f"i{kind}" if inverse else kind
    return _entered(function, name, f"Return `scipy.fft.{name}` of `x` along `axis`, `n` long.")


def _over_axes(one: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def function(
        x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: str | None = None
    ) -> Tensor:
        x = as_tensor(x)
        sizes = [s] if isinstance(s, int) else s
        axes = range(-(x.ndim if s is None else len(sizes)), 0) if axes is None else axes
        axes = [axes] if isinstance(axes, int) else axes
        pairs = zip(axes, [None] * len(axes) if s is None else sizes, strict=True)
        return functools.reduce(lambda t, pair: one(t, type, pair[1], pair[0], norm), pairs, x)

    name = f"{one.__name__}n"
    return _entered(function, name, f"Return `scipy.fft.{name}` of `x` over `axes`, of sizes `s`.")


dct, idct = _cosines("dct", False), _cosines("dct", True)
dst, idst = _cosines("dst", False), _cosines("dst", True)
dctn, idctn, dstn, idstn = map(_over_axes, (dct, idct, dst, idst))


# --- Hankel transforms: of symmetric matrices -----------------------------------------------------


def _hankel(name: str) -> Callable[..., Tensor]:
    def library(x: Any, *settings: Any) -> Any:
        result = scipy.function(device_of(x).type, f"fft.{name}")(x, *settings)
        return result.astype(x.dtype, copy=False)

    return linear(f"fft.{name}", library, library, leads=True)


_fht, _ifht = _hankel("fht"), _hankel("ifht")


@composed("fft")
def fht(a: Any, dln: float, mu: float, offset: float = 0.0, bias: float = 0.0) -> Tensor:
    """Return the Hankel transform of order `mu` of `a`, (..., n), at points `dln` apart in log."""
    return _fht(_taken(a), dln, mu, offset, bias)


@composed("fft", by="A")
def ifht(A: Any, dln: float, mu: float, offset: float = 0.0, bias: float = 0.0) -> Tensor:
    """Return what `fht` makes `A` of."""
    return _ifht(_taken(A), dln, mu, offset, bias)


__getattr__ = others("fft", globals())
