"""Fourier transforms, spectrograms and windows beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from tests.oracle import agree, gives, same_error, torch_module

rng = np.random.default_rng(5)
ROWS, BOX = rng.standard_normal((2, 6)), rng.standard_normal((2, 3, 5))
STRIDED = rng.standard_normal((5, 2)).T
SIGNAL = rng.standard_normal((2, 20))


def parts(x: Any) -> Any:
    """Real and imaginary parts: what the judge weighs is real."""
    return [x.real, x.imag] if x.is_complex() else x


def turned(x: Any) -> Any:
    """Complex numbers of real ones, through which gradients flow."""
    return x * (0.5 + 1j) + x.flip(-1)


ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {"n": 4}, {"n": 9, "norm": "ortho"}, {"dim": 0, "norm": "forward"}, {"n": 5, "dim": -2},
)  # fmt: skip


def called(m: Any, name: str, x: Any, **settings: Any) -> Any:
    """With complex numbers where the transform takes them."""
    takes_real = name.rstrip("2n") in ("rfft", "ihfft")
    return parts(getattr(m.fft, name)(x if takes_real else turned(x), **settings))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ONE)
def test_along_one_dimension(name: str, settings: Any, device: str) -> None:
    order = 2 if device == "cpu" else 1
    for x in (ROWS, STRIDED) if settings in SETTINGS[:2] else (ROWS,):
        agree(lambda m, x: called(m, name, x, **settings), x, device=device, order=order)


SEVERAL: tuple[dict[str, Any], ...] = (
    {}, {"s": (2, 4), "norm": "ortho"}, {"dim": (0, 2)}, {"s": (4, -1, 6), "dim": (2, 0, 1)},
    {"norm": "forward"},
)  # fmt: skip


@pytest.mark.parametrize("settings", SEVERAL, ids=str)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"])
def test_along_several_dimensions(name: str, settings: Any, device: str) -> None:
    agree(lambda m, x: called(m, name, x, **settings), BOX, device=device, order=1)


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2"])
def test_along_two_dimensions(name: str, device: str) -> None:
    agree(lambda m, x: called(m, name, x, s=(4, 6)), BOX, device=device, order=1)


def test_real_numbers_where_complex_ones_are_taken(device: str) -> None:
    for name in ("fft", "ifft", "irfft", "hfft"):
        agree(lambda m, x, name=name: parts(getattr(m.fft, name)(x)), ROWS, device=device)


def test_types(device: str) -> None:
    for name in ONE:
        single = ROWS.astype(np.float32)
        agree(lambda m, x, n=name: called(m, n, x), single, device=device, rtol=1e-4, atol=1e-4)
    for whole in (np.arange(4), np.array([True, False, True])):
        agree(lambda m, x: parts(m.fft.fft(x)), whole, device=device, order=0)
        agree(lambda m, x: parts(m.fft.rfft(x)), whole, device=device, order=0)


def test_batches_of_nothing(device: str) -> None:
    empty = lucid_gpu.zeros(0, 4, device=device)
    shapes = {"fft": (0, 4), "rfft": (0, 3), "irfft": (0, 6), "hfft": (0, 6), "ihfft": (0, 3)}
    for name, shape in shapes.items():
        found = getattr(lucid_gpu.fft, name)(empty)
        assert tuple(found.shape) == shape
        assert found.is_complex() is (name not in ("irfft", "hfft"))


def test_frequencies_and_shifts(device: str) -> None:
    for n in (1, 4, 5):
        gives(
            torch_module().fft.fftfreq(n, 0.5),
            lambda m, d, n=n: m.fft.fftfreq(n, 0.5, device=d),
            device,
        )
        gives(
            torch_module().fft.rfftfreq(n, 0.25),
            lambda m, d, n=n: m.fft.rfftfreq(n, 0.25, device=d),
            device,
        )
    for dim in (None, 1, (0, 2)):
        agree(lambda m, x, dim=dim: m.fft.fftshift(x, dim), BOX, device=device, order=1)
        agree(lambda m, x, dim=dim: m.fft.ifftshift(x, dim), BOX, device=device, order=1)


SPECTROGRAMS: tuple[dict[str, Any], ...] = (
    {"n_fft": 8},
    {"n_fft": 8, "hop_length": 3, "center": False, "onesided": False},
    {"n_fft": 8, "hop_length": 4, "win_length": 6, "normalized": True, "pad_mode": "constant"},
)


@pytest.mark.parametrize("settings", SPECTROGRAMS, ids=str)
def test_spectrograms(settings: Any, device: str) -> None:
    window = rng.random(settings.get("win_length", 8)) + 0.5

    def there(m: Any, x: Any, w: Any) -> Any:
        return parts(m.stft(x, window=w, return_complex=True, **settings))

    def back(m: Any, x: Any, w: Any) -> Any:
        spectrum = m.stft(x, window=w, return_complex=True, **settings)
        more = {k: v for k, v in settings.items() if k != "pad_mode"}
        return m.istft(spectrum.abs() * spectrum, window=w, length=17, **more)

    agree(there, SIGNAL, window, device=device, order=1)
    agree(back, SIGNAL, window, device=device, order=1)


def test_a_signal_comes_back(device: str) -> None:
    x = lucid_gpu.tensor(SIGNAL[0], device=device)
    window = lucid_gpu.hann_window(8, dtype=lucid_gpu.float64, device=device)
    found = x.stft(8, window=window, return_complex=True).istft(8, window=window)
    np.testing.assert_allclose(found.numpy(force=True), SIGNAL[0], atol=1e-12)
    two = lucid_gpu.stft(x, 8, window=window, return_complex=False)
    assert tuple(two.shape) == (5, 11, 2)


@pytest.mark.parametrize("length", [0, 1, 2, 7])
@pytest.mark.parametrize("periodic", [True, False])
def test_windows(length: int, periodic: bool, device: str) -> None:
    torch = torch_module()
    for name, more in (
        ("hann", ()), ("hamming", ()), ("hamming", (0.5, 0.3)), ("blackman", ()),
        ("bartlett", ()), ("kaiser", ()), ("kaiser", (3.5,)),
    ):  # fmt: skip
        make = f"{name}_window"
        mine = getattr(lucid_gpu, make)(length, periodic, *more, device=device)
        theirs = getattr(torch, make)(length, periodic, *more, dtype=torch.float64)
        assert mine.dtype is lucid_gpu.float32
        np.testing.assert_allclose(mine.numpy(force=True), theirs.numpy(), atol=1e-7)


def test_gradients_by_differences() -> None:
    x = lucid_gpu.tensor(ROWS, requires_grad=True)
    for name in ONE:
        assert gradcheck(lambda x, n=name: called(lucid_gpu, n, x), (x,), check_forward_ad=True)
        assert gradgradcheck(lambda x, n=name: called(lucid_gpu, n, x), (x,))


def test_batches_by_vmap(device: str) -> None:
    x = lucid_gpu.tensor(BOX, device=device)
    for name in ("fft", "rfft", "irfft", "fftn"):
        one = getattr(lucid_gpu.fft, name)
        found, wanted = lucid_gpu.vmap(one)(x), lucid_gpu.stack([one(row) for row in x])
        assert lucid_gpu.allclose(found.real, wanted.real)


REFUSED: tuple[tuple[Any, str], ...] = (
    (lambda m: m.fft.fft(m.ones(3), norm="x"), 'Invalid normalization mode: "x"'),
    (lambda m: m.fft.fft(m.ones(3), 0), "Invalid number of data points (0) specified"),
    (lambda m: m.fft.fft(m.ones(0)), "Invalid number of data points (0) specified"),
    (lambda m: m.fft.irfft(m.ones(1)), "Invalid number of data points (0) specified"),
    (lambda m: m.fft.fft(m.ones(3).half()), "Unsupported dtype"),
    (lambda m: m.fft.fft(m.tensor(1.0)), "Dimension specified as -1 but tensor has no dimensions"),
    (lambda m: m.fft.fft(m.ones(3), dim=2), "Dimension out of range (expected to be in range of"),
    (lambda m: m.fft.rfft(m.ones(3) * 1j), "rfft expects a real input tensor, but got"),
    (lambda m: m.fft.rfftn(m.ones(3) * 1j), "rfftn expects a real-valued input tensor, but got"),
    (lambda m: m.fft.fftn(m.ones(3, 4), s=(2, 3), dim=(0,)), "must have the same length"),
    (lambda m: m.fft.fftn(m.ones(3, 4), dim=(0, 0)), "FFT dims must be unique"),
    (lambda m: m.fft.fftn(m.ones(3, 4), s=(2, 3, 4)), "Got shape with 3 values but input tensor"),
    (lambda m: m.fft.rfftn(m.ones(3, 4), dim=()), "rfftn must transform at least one axis"),
    (lambda m: m.stft(m.ones(16), 8), "stft requires the return_complex parameter be given"),
    (lambda m: m.stft(m.ones(2, 2, 16), 8, return_complex=True), "expected a 1D or 2D tensor"),
    (lambda m: m.stft(m.ones(16), 8, 0, return_complex=True), "expected hop_length > 0"),
    (lambda m: m.stft(m.ones(16), 8, 4, 9, return_complex=True), "0 < win_length <= n_fft"),
    (lambda m: m.stft(m.ones(16), 8, 4, 6, m.ones(5), return_complex=True), "win_length=6"),
    (lambda m: m.istft(m.ones(5, 3), 8), "istft requires a complex-valued input tensor"),
    (lambda m: m.istft(m.ones(5, 5) * 1j, 8, window=m.hann_window(8), center=False),
     "window overlap add min"),
    (lambda m: m.hann_window(-1), "hann_window requires non-negative window_length, got window"),
    (lambda m: m.hann_window(4, dtype=m.int64), "hann_window expects floating point dtypes, got:"),
)  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(case: int) -> None:
    same_error(*REFUSED[case])


def test_spectra_of_complex_signals_in_two_parts(device: str) -> None:
    def spectra(m: Any, x: Any) -> Any:
        window = m.ones(8, dtype=x.dtype, device=x.device)
        both = m.stft(turned(x), 8, window=window, return_complex=False)
        return both, m.view_as_real(m.stft(turned(x), 8, window=window))

    agree(spectra, SIGNAL, device=device)
