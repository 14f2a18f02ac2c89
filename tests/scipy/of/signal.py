"""Calls of `scipy.signal`."""

from __future__ import annotations

from tests.ops.samples import fixed, row, t
from tests.scipy.of.fft import apart

ROWS = [
    row("signal.convolve", t(5), t(3)),
    row("signal.convolve", t(2), t(4), "valid"),
    row("signal.convolve", t(3, 4), t(2, 3), "same", "fft"),
    row("signal.correlate", t(3, 4), t(2, 3), "same", "direct"),
    row("signal.correlate", t(3), t(5), "valid"),
    row("signal.fftconvolve", t(2, 4), t(1, 3), "same", 1),
    row("signal.oaconvolve", t(5), t(2), "valid"),
    row("signal.convolve2d", t(3, 4), t(2, 2), "same", "symm"),
    row("signal.convolve2d", t(3, 4), t(2, 3), fillvalue=1.5),
    row("signal.correlate2d", t(3, 3), t(2, 2), "full", "wrap"),
    row("signal.correlate2d", t(3, 3), t(2, 2), "valid"),
    row("signal.lfilter", t(2), t(3, of=(0.5, 1.0)), t(2, 5)),
    row("signal.lfilter", t(3), fixed([1.0]), t(4, 2), 0),
    row("signal.sosfilt", fixed([[1.0, 0.5, 0.2, 1.0, 0.3, 0.1], [0.5, 1, 0, 1, -0.4, 0.2]]), t(4)),
    row("signal.filtfilt", t(2), t(2, of=(0.6, 1.0)), t(9)),
    row("signal.filtfilt", t(2), t(2, of=(0.6, 1.0)), t(5, 2), 0, "even", 2),
    row("signal.filtfilt", fixed([0.5, 0.5]), fixed([1.0]), t(5), padtype="constant", padlen=1),
    row("signal.detrend", t(2, 5)),
    row("signal.detrend", t(5, 2), 0, "constant", bp=2),
    row("signal.savgol_filter", t(2, 7), 5, 2),
    row("signal.savgol_filter", t(6, 2), 3, 1, 1, 0.5, 0, "mirror"),
    row("signal.savgol_filter", t(5), 3, 1, mode="constant", cval=2.0),
    row("signal.hilbert", t(2, 5)).compare(apart),
    row("signal.hilbert", t(4, 2), N=6, axis=0).compare(apart),
    row("signal.resample", t(4, 2), 7),
    row("signal.resample", t(2, 6), 4, axis=1),
    row("signal.resample", t(5), 3),
    row("signal.stft", t(9), nperseg=4).compare(lambda result: apart(result[2])),
    row(
        "signal.stft", t(9, 2), 2.0, fixed([1.0, 2.0, 0.5]), 3, 1, 4, axis=0, scaling="psd"
    ).compare(lambda result: apart(result[2])),
    row("signal.istft", t(3, 4), nperseg=4, noverlap=3).compare(lambda result: result[1]),
    row("signal.istft", t(4, 3), 1, fixed([1.0, 2.0, 0.5, 1.0]), 4, 2, 6, boundary=False).compare(
        lambda result: result[1]
    ),
]
