"""Discrete Fourier transforms: three linear maps, whose adjoints are such maps again.

Everything of `lucid_gpu.fft` is composed of transforms of complex numbers, of real numbers to half
a spectrum, and of half a spectrum to real numbers, none of them scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend
from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.arguments import is_number
from lucid_gpu.ops.complex_numbers import real
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.elementwise import cast
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import strides_of
from lucid_gpu.ops.padding import pad
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.rolled import roll
from lucid_gpu.tape.door import Cast, op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor

COMPLEX: dict[dtype, dtype] = {dt.float32: dt.complex64, dt.float64: dt.complex128}
REAL = {whole: part for part, whole in COMPLEX.items()}
Sizes = Sequence[int] | int | None

# --- the maps: dimensions count from the end ------------------------------------------------------


@op
def transformed(x: Tensor, dims: tuple[int, ...], inverse: bool) -> Tensor:
    """``sum_j x_j exp(-+2 pi i j k / n)`` along dimensions."""
    if not dims:
        return x
    array = _library("ifftn" if inverse else "fftn", x, axes=dims, norm=_unscaled(inverse))
    result: Tensor = record(
        "FftC2CBackward0", array, (x,), _transformed_vjp, dtype=x.dtype, dims=dims, inverse=inverse
    )
    return lay(result, _order(x, dims))


def _order(x: Tensor, dims: Sequence[int], last: int | None = None) -> tuple[int, ...] | None:
    """How results lie in PyTorch: the transformed dimensions innermost, else as before.

    Parameters
    ----------
    last : int, optional
        The one of them that is innermost in any case.
    """
    steps, rank = strides_of(x), x.ndim
    inner = {d % rank for d in dims}
    end = None if last is None else last % rank
    order = sorted(range(rank), key=lambda d: (d in inner, d == end, -steps[d]))
    return None if order == [*range(rank)] else tuple(order)


def _unscaled(inverse: bool) -> str:
    return "forward" if inverse else "backward"


def _library(name: str, x: Tensor, **options: Any) -> Any:
    array = x.array
    if array.size:
        return backend(x.device).library("fft", name, x.device, array, **options)
    return array  # of no elements, in the shape that only `transformed` can have


def _transformed_vjp(node: Any, g: Tensor) -> Any:
    return (transformed(g, node.dims, not node.inverse),)


batching(transformed)(on_value)


@op
def half_spectrum(x: Tensor, dim: int) -> Tensor:
    """The first ``n // 2 + 1`` frequencies of real numbers: the others are their conjugates."""
    n = x.shape[dim]
    if not x.numel():
        return cast(x, COMPLEX[x.dtype]).narrow(dim, 0, n // 2 + 1)
    array = backend(x.device).library("fft", "rfft", x.device, x.array, axis=dim)
    result: Tensor = record(
        "FftR2CBackward0", array, (x,), _half_vjp, dtype=COMPLEX[x.dtype], dim=dim, count=n
    )
    return lay(result, _order(x, (dim,)))


def _half_vjp(node: Any, g: Tensor) -> Any:
    return (real(transformed(resized(g, node.dim, node.count), (node.dim,), True)),)


batching(half_spectrum)(on_value)


@op
def from_half(x: Tensor, dim: int, n: int) -> Tensor:
    """The ``n`` real numbers with these first frequencies, times ``n``."""
    if not x.numel():
        return resized(real(x), dim, n)
    array = backend(x.device).library(
        "fft", "irfft", x.device, x.array, n, axis=dim, norm="forward"
    )
    result: Tensor = record(
        "FftC2RBackward0", array, (x,), _whole_vjp, dtype=REAL[x.dtype], dim=dim,
        count=x.shape[dim],
    )  # fmt: skip
    return lay(result, _order(x, (dim,)))


def _whole_vjp(node: Any, g: Tensor) -> Any:
    """A frequency counts twice if its conjugate was left out."""
    n = g.shape[node.dim]
    spectrum = half_spectrum(g, node.dim)
    places = arange(spectrum.shape[node.dim], device=g.device)
    twice = (places > 0).logical_and(places * 2 < n).to(g.dtype) + 1
    weighted = spectrum * twice.reshape((-1,) + (1,) * (-1 - node.dim))
    return (resized(weighted, node.dim, node.count),)


batching(from_half)(on_value)


# --- arguments ------------------------------------------------------------------------------------


def resized(x: Tensor, dim: int, n: int) -> Tensor:
    """Cut off or filled up with zeros along a dimension (counted from the end)."""
    missing = n - x.shape[dim]
    if missing == 0:
        return x
    if missing < 0:
        return x.narrow(dim, 0, n)
    return pad(x, (0, 0) * (-1 - dim) + (0, missing))


def as_inexact(input: Tensor, whole: bool) -> Tensor:
    """In a type that can be transformed; complex where ``whole``."""
    if input.dtype.category < 2:
        input = cast(input, dt.get_default_dtype())
    if input.dtype.itemsize == 2:
        raise RuntimeError(f"Unsupported dtype {input.dtype.name}; convert it with .float()")
    return cast(input, COMPLEX.get(input.dtype, input.dtype)) if whole else input


def _real_input(name: str, input: Tensor) -> Tensor:
    if input.dtype.is_complex:
        several = name.endswith(("n", "2"))
        word = "real-valued" if several else "real"
        said = f"{name[:-1]}n" if several else name  # rfft2 is rfftn over two dimensions
        raise RuntimeError(f"{said} expects a {word} input tensor, but got {input.dtype.name}")
    return as_inexact(input, False)


def dim_from_end(dim: int, rank: int) -> int:
    """A dimension counted from the end."""
    if not rank:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return normalize_dim(dim, rank) - rank


def _points(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def scaled(x: Tensor, norm: str | None, n: int, inverse: bool) -> Tensor:
    """Divided as ``norm`` says, for a transform of ``n`` numbers."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return x * (1 / math.sqrt(n))
    return x * (1 / n) if (norm == "forward") != inverse else x


def _sizes_and_dims(
    input: Tensor, s: Sizes, dim: Sizes
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Dimensions counted from the end, and how many points each is to have, if told."""
    rank = input.ndim
    sizes = (s,) if isinstance(s, int) else s
    axes = (dim,) if isinstance(dim, int) else dim
    if axes is not None:
        dims = tuple([dim_from_end(d, rank) for d in axes])
        if len(set(dims)) < len(dims):
            raise RuntimeError("FFT dims must be unique")
        if sizes is not None and len(sizes) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif sizes is not None:
        if len(sizes) > rank:
            raise RuntimeError(
                f"Got shape with {len(sizes)} values but input tensor only has {rank} dimensions."
            )
        dims = tuple(range(-len(sizes), 0))
    else:
        dims = tuple(range(-rank, 0))
    wanted = [None if sizes is None or sizes[i] == -1 else sizes[i] for i in range(len(dims))]
    return dims, tuple(wanted)


def _fitted(x: Tensor, dims: Sequence[int], sizes: Sequence[int | None]) -> Tensor:
    for d, n in zip(dims, sizes, strict=True):
        x = resized(x, d, _points(x.shape[d] if n is None else n))
    return x


def _count(x: Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


# --- the public functions -------------------------------------------------------------------------


_IN_FLOAT32: dict[str, Cast] = {"cpu": "float32"}  # in PyTorch's list, where `hfft2` is not


def _whole(name: str, inverse: bool, fixed: tuple[int, ...] | None) -> Callable[..., Tensor]:
    @op(autocast=_IN_FLOAT32)
    def transform(
        input: Tensor, s: Sizes = None, dim: Sizes = fixed, norm: str | None = None
    ) -> Tensor:
        dims, sizes = _sizes_and_dims(input, s, dim)
        x = _fitted(as_inexact(input, True), dims, sizes)
        return scaled(transformed(x, dims, inverse), norm, _count(x, dims), inverse)

    return _named(transform, name)


def _halved(name: str, conjugate: bool, fixed: tuple[int, ...] | None) -> Callable[..., Tensor]:
    """Real numbers to half a spectrum; ``conjugate`` is the inverse of a Hermitian transform."""

    @op(autocast=None if conjugate else _IN_FLOAT32)
    def transform(
        input: Tensor, s: Sizes = None, dim: Sizes = fixed, norm: str | None = None
    ) -> Tensor:
        x = _real_input(name, input)
        dims, sizes = _sizes_and_dims(x, s, dim)
        if not dims:
            raise RuntimeError(f"{name} must transform at least one axis")
        x = _fitted(x, dims, sizes)
        half = half_spectrum(x, dims[-1])
        half = half.conj_physical() if conjugate else half
        spectrum = transformed(half, dims[:-1], conjugate)
        if len(dims) > 1 and not conjugate:
            spectrum = lay(spectrum, _order(x, dims, dims[-1]))
        return scaled(spectrum, norm, _count(x, dims), conjugate)

    return _named(transform, name)


def _restored(name: str, conjugate: bool, fixed: tuple[int, ...] | None) -> Callable[..., Tensor]:
    """Half a spectrum to real numbers; ``conjugate`` is a forward Hermitian transform."""

    @op(autocast=None if conjugate else _IN_FLOAT32)
    def transform(
        input: Tensor, s: Sizes = None, dim: Sizes = fixed, norm: str | None = None
    ) -> Tensor:
        x = as_inexact(input, True)
        dims, sizes = _sizes_and_dims(x, s, dim)
        if not dims:
            raise RuntimeError(f"{name} must transform at least one axis")
        last = sizes[-1]
        n = _points(2 * (x.shape[dims[-1]] - 1) if last is None else last)
        x = _fitted(x, dims, (*sizes[:-1], n // 2 + 1))
        x = transformed(x, dims[:-1], not conjugate)
        signal = from_half(x.conj_physical() if conjugate else x, dims[-1], n)
        return scaled(signal, norm, n * _count(x, dims[:-1]), not conjugate)

    return _named(transform, name)


_DOCS = {
    "fft": "Fourier transform of complex numbers: ``sum_j x_j exp(-2 pi i j k / n)``.",
    "ifft": "Inverse of `fft`.",
    "rfft": "The first half of the Fourier transform of real numbers.",
    "irfft": "Inverse of `rfft`: real numbers.",
    "hfft": "Fourier transform of numbers that are Hermitian in time, given by half: real.",
    "ihfft": "Inverse of `hfft`: half of numbers that are Hermitian.",
}
_ARGUMENTS = """

    Parameters
    ----------
    input : Tensor, of any shape
        Integers count as floats of the default type; 16-bit floats are refused.
    {sizes}
        Points along the dimension: cut off, or filled up with zeros.
    {dims}
    norm : {{"backward", "ortho", "forward"}}, optional
        Which direction is divided by the number of points: the inverse (the default), both by its
        root, or the forward one.

    Raises
    ------
    RuntimeError
        For less than one point, dimensions given twice, and types that are refused.
    IndexError
        For a dimension that there is not.
    """


def _named(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    stem = name.rstrip("2n")
    several = " Along several dimensions." if stem != name else ""
    arguments = _ARGUMENTS.format(
        sizes="s : sequence of int, optional" if several else "n : int, optional",
        dims="dim : sequence of int" if several else "dim : int",
    )
    return named(function, name, _DOCS[stem] + several + arguments)


def _one(name: str, several: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @op(autocast=_IN_FLOAT32)
    def transform(
        input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
    ) -> Tensor:
        dim_from_end(dim, input.ndim)
        if input.dtype.is_complex and name in ("rfft", "ihfft"):
            _real_input(name, input)
        return several(input, None if n is None else (_points(n),), (dim,), norm)

    return _named(transform, name)


_LAST = (-2, -1)
fftn, ifftn = _whole("fftn", False, None), _whole("ifftn", True, None)
fft2, ifft2 = _whole("fft2", False, _LAST), _whole("ifft2", True, _LAST)
rfftn, ihfftn = _halved("rfftn", False, None), _halved("ihfftn", True, None)
rfft2, ihfft2 = _halved("rfft2", False, _LAST), _halved("ihfft2", True, _LAST)
irfftn, hfftn = _restored("irfftn", False, None), _restored("hfftn", True, None)
irfft2, hfft2 = _restored("irfft2", False, _LAST), _restored("hfft2", True, _LAST)
fft, ifft, rfft = _one("fft", fftn), _one("ifft", ifftn), _one("rfft", rfftn)
irfft, hfft, ihfft = _one("irfft", irfftn), _one("hfft", hfftn), _one("ihfft", ihfftn)


# --- frequencies ----------------------------------------------------------------------------------


@op
def fftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of `fft` of ``n`` points ``d`` apart: 0, positive, then negative ones."""
    positive = arange((n + 1) // 2, dtype=dtype or dt.get_default_dtype(), device=device)
    negative = arange(-(n // 2), 0, dtype=positive.dtype, device=device)
    from lucid_gpu.ops.shape import cat

    frequencies = cat([positive, negative]) * (1 / (n * d)) if n else positive
    return frequencies._mark(requires_grad)


@op
def rfftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of `rfft` of ``n`` points ``d`` apart."""
    frequencies = arange(n // 2 + 1, dtype=dtype or dt.get_default_dtype(), device=device)
    return (frequencies * (1 / (n * d)) if n else frequencies)._mark(requires_grad)


@op
def fftshift(input: Tensor, dim: Sizes = None) -> Tensor:
    """With frequency 0 in the middle of all dimensions, or of the given ones; of the same shape."""
    return _shifted(input, dim, 0)


@op
def ifftshift(input: Tensor, dim: Sizes = None) -> Tensor:
    """Inverse of `fftshift`."""
    return _shifted(input, dim, 1)


def _shifted(input: Tensor, dim: Sizes, up: int) -> Tensor:
    dims: Any = range(input.ndim) if dim is None else (dim,) if is_number(dim) else dim
    return roll(input, [(input.shape[d] + up) // 2 for d in dims], list(dims))
