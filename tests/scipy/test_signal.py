"""`lucid_gpu.scipy.signal` at the edges: types, sections, spectra, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.scipy import signal

scipy = pytest.importorskip("scipy.signal", reason="lucid_gpu.scipy computes by SciPy")


def drawn(*shape: int, dtype: Any = lucid_gpu.float64) -> lucid_gpu.Tensor:
    return lucid_gpu.randn(*shape, dtype=dtype, generator=lucid_gpu.Generator().manual_seed(3))


@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_complex_signals(name: str, mode: str) -> None:
    pair = [drawn(n, dtype=lucid_gpu.complex128).requires_grad_() for n in (4, 2)]
    function = getattr(signal, name)
    expected = getattr(scipy, name)(*[z.detach().numpy() for z in pair], mode)
    np.testing.assert_allclose(function(*pair, mode).detach(), expected, atol=1e-12)
    assert gradcheck(lambda a, b: function(a, b, mode), pair, check_forward_ad=True)


def test_signals_of_no_numbers() -> None:
    x = lucid_gpu.empty(2, 0, requires_grad=True)
    assert signal.fftconvolve(x, lucid_gpu.ones(1, 1), axes=1).shape == (2, 0)
    b = lucid_gpu.ones(2, requires_grad=True)
    signal.lfilter(b, [1.0, 0.5], x).sum().backward()
    assert b.grad is not None and b.grad.tolist() == [0, 0]


def test_sections_have_derivatives() -> None:
    """SciPy wants ones in the column 3, which differences would change."""
    parts = drawn(2, 5).mul(0.3).requires_grad_(), drawn(6).requires_grad_()

    def filtered(p: Any, x: Any) -> Any:
        return signal.sosfilt(lucid_gpu.cat([p[:, :3], p.new_ones(2, 1), p[:, 3:]], 1), x)

    assert gradcheck(filtered, parts, check_forward_ad=True)


@pytest.mark.parametrize("size", [8, 11])
@pytest.mark.parametrize("settings", [{}, {"boundary": None, "padded": False, "fs": 5.0}])
def test_spectra_are_scipys_and_lead_back(size: int, settings: dict[str, Any]) -> None:
    x = drawn(2, size)
    got = signal.stft(x, nperseg=4, **settings)
    for ours, theirs in zip(got, scipy.stft(x.numpy(), nperseg=4, **settings), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    if not settings:
        t, back = signal.istft(got[2])
        np.testing.assert_allclose(back[:, :size], x, atol=1e-12)
        np.testing.assert_allclose(t, scipy.istft(got[2][0].numpy())[0])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: signal.convolve(x, x, "whole"), "mode is 'full', 'valid' or 'same'"),
        (lambda x: signal.convolve(x, x[0]), "in1 and in2 have one rank, got 2 and 1"),
        (lambda x: signal.fftconvolve(x, x.T, "valid"), "one of in1, in2 holds the other"),
        (lambda x: signal.convolve(x, x, method="slow"), "method is 'auto', 'direct' or 'fft'"),
        (lambda x: signal.convolve2d(x, x, boundary="torn"), "boundary 'fill', 'wrap' or 'symm'"),
        (lambda x: signal.lfilter(x, 1.0, x), "b and a have one dimension, got 2 and 0"),
        (lambda x: signal.filtfilt([1.0], [1.0], x), "more numbers than padlen are expected"),
        (lambda x: signal.sosfilt(x, x), r"sos has shape \(n, 6\), got \(2, 3\)"),
        (lambda x: signal.savgol_filter(x, 2, 1), "an odd window_length"),
        (lambda x: signal.hilbert(x + 1j), "x is real, got complex numbers"),
        (lambda x: signal.stft(x, window=[1.0, 1.0], nperseg=3), "nperseg is the window's length"),
        (lambda x: signal.stft(x, nperseg=3, noverlap=3), "noverlap is less than nperseg, 3"),
        (lambda x: signal.stft(x, nperseg=2, scaling="loud"), "scaling is 'spectrum' or 'psd'"),
        (lambda x: signal.stft(x, nperseg=2, boundary="even"), "boundary is 'zeros' or None"),
    ],
)
def test_other_arguments_are_refused(call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(drawn(2, 3))
