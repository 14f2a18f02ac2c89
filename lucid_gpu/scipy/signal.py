"""`scipy.signal` with derivatives: convolutions, filters, spectra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu import fft as transforms
from lucid_gpu.devices import device_of, scipy
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors, inexact
from lucid_gpu.ops.fourier import resized
from lucid_gpu.ops.padding import pad
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import cat, movedim, stack
from lucid_gpu.scipy.rows import composed, computed, linear, others, refused
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "detrend", "fftconvolve"]
__all__ += [
    "filtfilt",
    "hilbert",
    "istft",
    "lfilter",
    "oaconvolve",
    "resample",
    "savgol_filter",
    "sosfilt",
]
__all__ += ["spectrogram", "stft", "welch"]

MODES = ("full", "valid", "same")


def _numbers(*values: Any) -> list[Tensor]:
    """Return `values` as tensors of one floating point or complex type and one device."""
    return alike(*[inexact(t) for t in as_tensors(values)])


def _constant(values: Any, like: Tensor) -> Tensor:
    """Return numbers beside `like`, in its type where it is real, else in that of its parts."""
    return as_tensor(values, like).to(like.real.dtype if like.dtype.is_complex else like.dtype)


# --- convolutions ---------------------------------------------------------------------------------


def _part(full: Tensor, mode: str, a: Sequence[int], b: Sequence[int], axes: Any) -> Tensor:
    """Return what `mode` keeps of a full convolution of the shapes `a` and `b`: its middle."""
    for d in axes if mode != "full" else ():
        count = a[d] if mode == "same" else abs(a[d] - b[d]) + 1
        full = full.narrow(d, (full.shape[d] - count) // 2, count)
    return full


def _known(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode is 'full', 'valid' or 'same', got {mode!r}")


def _fit(a: Tensor, b: Tensor, mode: str, axes: Sequence[int]) -> None:
    _known(mode)
    if a.ndim != b.ndim:
        raise ValueError(f"in1 and in2 have one rank, got {a.ndim} and {b.ndim}")
    order = {a.shape[d] > b.shape[d] for d in axes if a.shape[d] != b.shape[d]}
    if mode == "valid" and len(order) > 1:
        raise ValueError(f"one of in1, in2 holds the other: got {tuple(a.shape)}, {tuple(b.shape)}")


def _by_spectra(a: Tensor, b: Tensor, mode: str, axes: Sequence[int]) -> Tensor:
    sizes = [a.shape[d] + b.shape[d] - 1 for d in axes]
    fast = [_fast(max(n, 1)) for n in sizes]
    names = ("fftn", "ifftn") if a.dtype.is_complex else ("rfftn", "irfftn")
    there, back = (getattr(transforms, name) for name in names)
    full = back(there(a, fast, axes) * there(b, fast, axes), fast, axes)
    for d, n in zip(axes, sizes, strict=True):
        full = full.narrow(d, 0, n)
    return _part(full, mode, a.shape, b.shape, axes)


def _fast(n: int) -> int:
    """Return the next number of factors 2, 3 and 5."""
    rest = n
    for p in (2, 3, 5):
        while rest % p == 0:
            rest //= p
    return n if rest == 1 else _fast(n + 1)


@composed("signal", by="in1 in2")
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Tensor:
    """Return the convolution of `in1` and `in2` over `axes`, by default all; others broadcast.

    Parameters
    ----------
    in1, in2 : Tensor or array, of one rank
    mode : {"full", "valid", "same"}
        Whether all of it, where one lies within the other, or the middle, as large as `in1`.

    Raises
    ------
    ValueError
        For other modes, and shapes that do not fit.
    """
    a, b = _numbers(in1, in2)
    axes = range(a.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    axes = tuple([d % a.ndim for d in axes])
    _fit(a, b, mode, axes)
    return _by_spectra(a, b, mode, axes)


@composed("signal", by="in1 in2")
def oaconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Tensor:
    """Return what `fftconvolve` returns, computed as it does: of the whole at once."""
    return fftconvolve(in1, in2, mode, axes)


@op
def _convolved(a: Tensor, b: Tensor, mode: str, method: str) -> Tensor:
    """Return the full convolution, or the valid one of `a` with a smaller `b`."""

    function = scipy.function(a.device.type, "signal.convolve")
    array = computed("signal.convolve", function, a, b, mode, method)
    result: Tensor = record(
        "ConvolveBackward0", array, (a, b), _convolved_vjp, (a, b), a.dtype, mode=mode,
        method=method,
    )  # fmt: skip
    return result


def _reversed(x: Tensor) -> Tensor:
    x = x.flip(*range(x.ndim))
    return x.conj_physical() if x.dtype.is_complex else x


def _convolved_vjp(node: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    (a, b), method = node.saved_values, node.method
    if node.mode == "valid":
        by_b = _convolved(_reversed(a), g, "valid", method)
        return _convolved(g, _reversed(b), "full", method), by_b
    return tuple([_convolved(g, _reversed(x), "valid", method) for x in (b, a)])  # type: ignore[return-value]


@jvp(_convolved_vjp)
def _convolved_jvp(call: Call) -> list[Tensor]:
    return call.bilinear(_convolved, "mode", "method")


@batching(_convolved)
def _convolved_batched(level: Batch, f: Any, a: Tensor, b: Tensor, mode: str, method: str) -> Any:
    a, b = level.full(a), level.full(b)
    return level.wrap(_by_spectra(a, b, mode, range(1, a.ndim)))


@composed("signal", by="in1 in2")
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Tensor:
    """Return the convolution of `in1` and `in2` over all axes: see `fftconvolve`.

    `method` is "direct", "fft" or "auto". ValueError for others.
    """
    a, b = _numbers(in1, in2)
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"method is 'auto', 'direct' or 'fft', got {method!r}")
    _fit(a, b, mode, range(a.ndim))
    if method == "fft":
        return fftconvolve(a, b, mode)
    if mode == "valid":
        small = any(m < n for m, n in zip(a.shape, b.shape, strict=True))
        return _convolved(*((b, a) if small else (a, b)), mode, method)
    return _part(_convolved(a, b, "full", method), mode, a.shape, b.shape, range(a.ndim))


@composed("signal", by="in1 in2")
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Tensor:
    """Return the convolution of `in1` with `in2` reversed and conjugated: see `convolve`."""
    a, b = _numbers(in1, in2)
    return convolve(a, _reversed(b), mode, method)


PADDED = {"wrap": "wrap", "symm": "symmetric", "mirror": "reflect", "nearest": "edge"}


def _extended(x: Tensor, d: int, count: int, boundary: str, value: Any) -> Tensor:
    """Return `x` with `count` more on both sides of dimension `d`, which is negative."""
    if boundary not in PADDED:
        return pad(x, (0, 0) * (-1 - d) + (count, count), value=value)
    places = np.pad(np.arange(x.shape[d]), count, PADDED[boundary])  # type: ignore[call-overload]
    return x.index_select(d, as_tensor(places, x))


@composed("signal", by="in1 in2")
def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Tensor:
    """Return the convolution of two matrices: see `fftconvolve`.

    Parameters
    ----------
    in1, in2 : Tensor or array, of two dimensions
    boundary : {"fill", "wrap", "symm"}
        What lies around `in1`: `fillvalue`, itself again, its mirror image.

    Raises
    ------
    ValueError
        For other words and ranks.
    """
    a, b = _numbers(in1, in2)
    if a.ndim != 2 or boundary not in ("fill", "wrap", "symm"):
        raise ValueError(
            f"matrices and boundary 'fill', 'wrap' or 'symm' are expected, got {a.ndim} dimensions "
            f"and {boundary!r}"
        )
    _fit(a, b, mode, (0, 1))
    if mode == "valid":
        return convolve(a, b, mode)
    wide = a
    for d in (-2, -1):
        wide = _extended(wide, d, b.shape[d] - 1, boundary, fillvalue)
    return _part(_convolved(wide, b, "valid", "auto"), mode, a.shape, b.shape, (0, 1))


@composed("signal", by="in1 in2")
def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Tensor:
    """Return the correlation of two matrices; arguments are those of `convolve2d`."""
    a, b = _numbers(in1, in2)
    return convolve2d(a, _reversed(b), mode, boundary, fillvalue)


# --- filters --------------------------------------------------------------------------------------


@op
def _filtered(b: Tensor, a: Tensor, x: Tensor) -> Tensor:
    """Return ``y`` of ``sum_k a_k y_(n - k) = sum_k b_k x_(n - k)`` along the last dimension."""
    function = scipy.function(x.device.type, "signal.lfilter")
    inputs = (b, a, x)
    array = computed("signal.lfilter", function, *inputs)
    result: Tensor = record(
        "LfilterBackward0", array, inputs, _filtered_vjp, inputs, x.dtype, keeps_output=True
    )
    return result


def _lags(h: Tensor, x: Tensor, count: int) -> Tensor:
    """Return the sums of ``conj(x_(n - k)) h_n`` for each ``k`` below `count`."""
    x = x.conj_physical() if x.dtype.is_complex else x
    n = x.shape[-1]
    if not n:
        return h.new_zeros(count)
    every = _by_spectra(h, x.flip(-1), "full", (x.ndim - 1,)).narrow(-1, n - 1, n)
    return resized(every.reshape(-1, n).sum(0), -1, count)


def _filtered_vjp(node: Any, g: Tensor) -> tuple[Tensor, ...]:
    b, a, x, y = node.saved_values
    turned, b_, a_ = g.flip(-1), *[t.conj_physical() if t.dtype.is_complex else t for t in (b, a)]
    h = _filtered(a_.new_ones(1), a_, turned).flip(-1)
    by_b, by_a = _lags(h, x, b.shape[-1]), -_lags(h, y, a.shape[-1])
    return by_b, by_a, _filtered(b_, a_, turned).flip(-1)


@jvp(_filtered_vjp)
def _filtered_jvp(call: Call) -> list[Tensor]:
    (b, a, x), (t_b, t_a, t_x), (y,) = call.inputs, call.tangents, call.results
    parts = [None if t_b is None else _filtered(t_b, a, x)]
    parts += [None if t_a is None else -_filtered(t_a, a, y)]
    parts += [None if t_x is None else _filtered(b, a, t_x)]
    first, *rest = [p for p in parts if p is not None]
    for p in rest:
        first = first + p
    return [first]


@batching(_filtered)
def _filtered_batched(level: Batch, f: Any, b: Tensor, a: Tensor, x: Tensor) -> Any:
    if not level.holds(b) and not level.holds(a):
        return level.wrap(f(b, a, level.value(x)))
    examples = zip(*[level.full(t) for t in (b, a, x)], strict=True)
    return level.wrap(stack([f(*one) for one in examples]))


def _filters(b: Any, a: Any, x: Any, axis: int) -> list[Tensor]:
    """Return both polynomials as vectors, and `x` with `axis` as its last dimension."""
    b, a, x = _numbers(b, a, x)
    if b.ndim > 1 or a.ndim > 1:
        raise ValueError(f"b and a have one dimension, got {b.ndim} and {a.ndim}")
    return [b.reshape(-1), a.reshape(-1), movedim(x, axis, -1)]


@composed("signal", domain="`a[0]` is not zero", by="b a x")
def lfilter(b: Any, a: Any, x: Any, axis: int = -1) -> Tensor:
    """Return `x`, zero before its beginning, filtered along `axis`.

    ``a_0 y_n = sum_k b_k x_(n - k) - sum_(k > 0) a_k y_(n - k)``.

    Parameters
    ----------
    b, a : Tensor, array or number, of at most one dimension
    x : Tensor or array

    Raises
    ------
    ValueError
        For more dimensions of `b` and `a`.
    """
    return movedim(_filtered(*_filters(b, a, x, axis)), -1, axis)


@composed("signal", domain="the sum of `a` is not zero", by="b a x")
def filtfilt(
    b: Any,
    a: Any,
    x: Any,
    axis: int = -1,
    padtype: str | None = "odd",
    padlen: int | None = None,
) -> Tensor:
    """Return `x` filtered along `axis` forward and then backward, each time from a steady state.

    Parameters
    ----------
    padtype : {"odd", "even", "constant", None}
        What lies before and after `x`: itself turned about its end, its mirror image, its end.
    padlen : int, optional
        How many numbers of that; by default three times as many as the longer of `b` and `a` has.

    Raises
    ------
    ValueError
        For another `padtype`, and an `x` that is not longer than `padlen`.
    """
    b, a, x = _filters(b, a, x, axis)
    edge = 3 * max(len(b), len(a)) if padlen is None else padlen
    edge = 0 if padtype is None else edge
    if padtype not in ("odd", "even", "constant", None) or x.shape[-1] <= edge:
        raise ValueError(
            "padtype 'odd', 'even', 'constant' or None and more numbers than padlen are expected, "
            f"got {padtype!r}, and {x.shape[-1]} numbers with padlen {edge}"
        )
    if edge:
        wide = _extended(x, -1, edge, "nearest" if padtype == "constant" else "mirror", None)
        if padtype == "odd":
            wide = 2 * _extended(x, -1, edge, "nearest", None) - wide
            wide = cat([wide[..., :edge], x, wide[..., -edge:]], -1)
        x = wide
    for _ in range(2):
        first = x[..., :1]
        x = (_filtered(b, a, x - first) + first * (b.sum() / a.sum())).flip(-1)
    return movedim(x.narrow(-1, edge, x.shape[-1] - 2 * edge), -1, axis)


@composed("signal", by="sos x")
def sosfilt(sos: Any, x: Any, axis: int = -1) -> Tensor:
    """Return `x` filtered along `axis` by sections, of shape (n, 6), one after the other."""
    sos, x = _numbers(sos, x)
    if sos.ndim != 2 or sos.shape[1] != 6:
        raise ValueError(f"sos has shape (n, 6), got {tuple(sos.shape)}")
    for section in sos:
        x = lfilter(section[:3], section[3:], x, axis)
    return x


def _trend(x: Any, *settings: Any) -> Any:
    return scipy.function(device_of(x).type, "signal.detrend")(x, -1, *settings)


_detrended = linear("signal.detrend", _trend, _trend, leads=True)  # a projection


@composed("signal")
def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0) -> Tensor:
    """Return `data` without its line, or its mean where `type` is "constant", along `axis`.

    `bp` are the places where another line begins.
    """
    x = movedim(inexact(as_tensor(data)), axis, -1)
    return movedim(_detrended(x, type, bp), -1, axis)


@composed("signal")
def savgol_filter(
    x: Any,
    window_length: int,
    polyorder: int,
    deriv: int = 0,
    delta: float = 1.0,
    axis: int = -1,
    mode: str = "interp",
    cval: float = 0.0,
) -> Tensor:
    """Return polynomials of degree `polyorder` fitted to `x` in windows, or derivatives of them.

    Parameters
    ----------
    window_length : int
        Odd.
    mode : {"interp", "mirror", "constant", "nearest", "wrap"}
        Whether ends are read off the first and last polynomial, or what lies around `x`: its mirror
        image, `cval`, its last value, `x` again.

    Raises
    ------
    ValueError
        For others, and a window without a middle.
    """
    if window_length % 2 == 0 or mode not in ("interp", "constant", *PADDED) or mode == "symm":
        raise ValueError(
            "an odd window_length and a mode of 'interp', 'mirror', 'constant', 'nearest', 'wrap' "
            f"are expected, got {window_length} and {mode!r}"
        )
    x, half = movedim(inexact(as_tensor(x)), axis, -1), window_length // 2
    fit = scipy.function("cpu", "signal.savgol_filter")  # of each value of a window: its part
    unit = np.eye(window_length)
    parts = _constant(fit(unit, window_length, polyorder, deriv, delta, 0), x).mT
    if mode != "interp":
        x = _extended(x, -1, half, mode, cval)
    middle = x.unfold(-1, window_length, 1) @ parts[:, half]
    if mode == "interp":
        ends = x[..., :window_length] @ parts[:, :half], x[..., -window_length:] @ parts[:, -half:]
        middle = cat([ends[0], middle, ends[1]], -1) if half else middle
    return movedim(middle, -1, axis)


# --- spectra --------------------------------------------------------------------------------------


@composed("signal")
def hilbert(x: Any, N: int | None = None, axis: int = -1) -> Tensor:
    """Return the analytic signal of real `x`, of its first `N` numbers: complex.

    ValueError for complex `x`.
    """
    x = inexact(as_tensor(x))
    if x.dtype.is_complex:
        raise ValueError("x is real, got complex numbers; write hilbert(x.real)")
    n = x.shape[axis] if N is None else N
    counted = np.zeros(n)
    counted[: n // 2 + 1], counted[1 : (n + 1) // 2] = 1, 2
    spectrum = transforms.fft(movedim(x, axis, -1), n) * _constant(counted, x)
    return movedim(transforms.ifft(spectrum), -1, axis)


@composed("signal")
def resample(x: Any, num: int, axis: int = 0) -> Tensor:
    """Return `num` numbers along `axis` of the same period as `x`, of its frequencies."""
    x = movedim(inexact(as_tensor(x)), axis, -1)
    n, whole = x.shape[-1], x.dtype.is_complex
    kept = min(n, num)
    spectrum = transforms.fft(x)
    low, high = spectrum[..., : (kept + 1) // 2], spectrum[..., n - (kept - 1) // 2 :]
    middle = [spectrum.new_zeros((*spectrum.shape[:-1], num - low.shape[-1] - high.shape[-1]))]
    if kept % 2 == 0:  # both halves of the highest frequency
        top = spectrum[..., kept // 2 : kept // 2 + 1]
        if num < n:
            top = top + spectrum[..., n - kept // 2 : n - kept // 2 + 1]
            middle = [top]
        elif num > n:
            middle = [top / 2, middle[0][..., 2:], top / 2]
        else:
            middle = [top]
    y = transforms.ifft(cat([low, *middle, high], -1)) * (num / n)
    return movedim(y if whole else y.real, -1, axis)


def _window(window: Any, nperseg: int | None, most: int | None, x: Tensor) -> Tensor:
    """Return a window by its name, at most `most` long, or as it is given."""
    if isinstance(window, (str, tuple)):
        count = 256 if nperseg is None else nperseg
        count = count if most is None else min(count, most)
        return _constant(scipy.function("cpu", "signal.get_window")(window, count), x)
    window = _constant(window, x)
    if nperseg not in (None, window.shape[-1]):
        raise ValueError(f"nperseg is the window's length, {window.shape[-1]}: got {nperseg}")
    return window


def _steps(nperseg: int, noverlap: int | None) -> int:
    overlap = nperseg // 2 if noverlap is None else noverlap
    if not 0 <= overlap < nperseg:
        raise ValueError(f"noverlap is less than nperseg, {nperseg}: got {overlap}")
    return nperseg - overlap


def _scale(window: Tensor, fs: float, scaling: str) -> Tensor:
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"scaling is 'spectrum' or 'psd', got {scaling!r}")
    return window.sum() if scaling == "spectrum" else (fs * (window * window).sum()).sqrt()


@composed("signal", by="x window")
def stft(
    x: Any,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
    scaling: str = "spectrum",
) -> tuple[Tensor, Tensor, Tensor]:
    """Return frequencies, times, and the transforms of windows of `x` along `axis`.

    Parameters
    ----------
    x : Tensor or array
    fs : float
        Numbers in a unit of time.
    window : str, tuple, Tensor or array
        SciPy's name of one, of `nperseg` numbers, or the numbers.
    noverlap, nfft : int, optional
        How many numbers two windows share, by default half; how many are transformed.
    return_onesided : bool
        Whether only frequencies from 0 on are returned, of real `x`.
    boundary : {"zeros", None}
        Whether half a window of zeros lies before and after `x`.
    padded : bool
        Whether zeros fill the last window; else it is left out.
    scaling : {"spectrum", "psd"}

    Raises
    ------
    ValueError
        For other words, and lengths that do not fit.
    """
    if boundary not in ("zeros", None):
        raise ValueError(f"boundary is 'zeros' or None, got {boundary!r}")
    x = movedim(inexact(as_tensor(x)), axis, -1)
    window = _window(window, nperseg, x.shape[-1], x)
    n, half = window.shape[-1], window.shape[-1] // 2
    step, points = _steps(n, noverlap), n if nfft is None else nfft
    x = pad(x, (half, half)) if boundary else x
    x = pad(x, (0, -(x.shape[-1] - n) % step % n)) if padded else x
    frames = x.unfold(-1, n, step) * window
    real = return_onesided and not x.dtype.is_complex
    Z = (transforms.rfft if real else transforms.fft)(frames, points) / _scale(window, fs, scaling)
    f = (transforms.rfftfreq if real else transforms.fftfreq)(points, 1 / fs)
    t = (np.arange(frames.shape[-2]) * step + (0 if boundary else n / 2)) / fs
    return _constant(f, x), _constant(t, x), movedim(Z, -1, axis if axis >= 0 else axis - 1)


@composed("signal", by="Zxx window")
def istft(
    Zxx: Any,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
    scaling: str = "spectrum",
) -> tuple[Tensor, Tensor]:
    """Return times, and the signal whose `stft` by the same arguments comes closest to `Zxx`.

    Where windows leave a gap, its numbers are zero. ValueError for other words and lengths.
    """
    Z = movedim(inexact(as_tensor(Zxx)), (freq_axis, time_axis), (-1, -2))
    points = 2 * (Z.shape[-1] - 1) if input_onesided else Z.shape[-1]
    points = points if nfft is None else nfft
    count = points if nperseg is None and isinstance(window, (str, tuple)) else nperseg
    window = _window(window, count, None, Z)
    n, half = window.shape[-1], window.shape[-1] // 2
    step, frames = _steps(n, noverlap), Z.shape[-2]
    parts = (transforms.irfft if input_onesided else transforms.ifft)(Z, points)[..., :n]
    places = np.arange(frames)[:, None] * step + np.arange(n)
    total = step * (frames - 1) + n
    x = _added(parts * window * _scale(window, fs, scaling), places, total)
    weight = _added((window * window).expand(frames, n), places, total)
    if boundary:
        x, weight = x[..., half : total - half], weight[half : total - half]
    x = x / weight.where(weight > 1e-10, 1.0)
    return _constant(np.arange(x.shape[-1]) / fs, Z), x


def _added(parts: Tensor, places: Any, total: int) -> Tensor:
    """Return the sums of `parts`, (..., frames, n), that belong to each place, (..., total)."""
    zeros = parts.new_zeros((*parts.shape[:-2], total))
    return zeros.index_add(-1, as_tensor(places.reshape(-1), parts), parts.flatten(-2))


SPECTRA = "it is made of stft, which has one; write (abs(stft(...)[2]) ** 2){}"
spectrogram = refused("signal.spectrogram", SPECTRA.format(""))
welch = refused("signal.welch", SPECTRA.format(".mean(-1)"))

__getattr__ = others("signal", globals())
