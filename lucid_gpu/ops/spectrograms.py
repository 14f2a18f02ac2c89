"""Short-time Fourier transforms: spectra of frames that slide over a signal, and the way back."""

from __future__ import annotations

from typing import Any

from lucid_gpu.ops import fourier
from lucid_gpu.ops.creation import arange, ones
from lucid_gpu.ops.padding import pad
from lucid_gpu.ops.shape import owned, stack
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tensor import Tensor


@op(autocast={"cpu": "float32"})
@owned
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: Truth = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Tensor:
    """Spectra of the frames of a signal, each multiplied by a window.

    Parameters
    ----------
    input : Tensor, shape (t,) or (batch, t)
    n_fft : int
        Length of a frame.
    hop_length : int, optional
        How far apart frames begin; by default a quarter of their length.
    window : Tensor, shape (win_length,), optional
        By default ones; if shorter than a frame it is centered.
    center : bool
        Whether frames are centered at their positions: the signal is padded by half a frame.
    normalized : bool
        Whether spectra are divided by the root of ``n_fft``.
    onesided : bool, optional
        Whether the first half of each spectrum is returned; by default for real signals.
    return_complex : bool
        Required for real signals; if False, real and imaginary parts are a last dimension.

    Returns
    -------
    Tensor, shape (..., frequencies, frames)

    Raises
    ------
    RuntimeError
        For another rank, a real input without ``return_complex``, a signal shorter than a frame, a
        window of another length, and ``onesided`` for complex ones.
    """
    whole = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None and not whole:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further "
            "require that return_complex=True in a future PyTorch release."
        )
    if input.ndim not in (1, 2):
        raise RuntimeError(
            f"stft(): expected a 1D or 2D tensor, but got one of shape {list(input.shape)}"
        )
    onesided = not whole if onesided is None else onesided
    if onesided and whole:
        raise RuntimeError(
            "Cannot have onesided output if window or input is complex; pass onesided=False"
        )
    hop, taper = _settings("stft", input, n_fft, hop_length, win_length, window)
    x = input.unsqueeze(0) if input.ndim == 1 else input
    if center:
        x = pad(x.unsqueeze(0), (n_fft // 2, n_fft // 2), pad_mode).squeeze(0)
    if x.shape[-1] < n_fft:
        raise RuntimeError(
            f"stft(): expected 0 < n_fft <= {x.shape[-1]}, the signal's length, but got "
            f"n_fft={n_fft}"
        )
    count = 1 + (x.shape[-1] - n_fft) // hop
    frames = x[:, _positions(x, count, hop, n_fft)] * taper
    transform = fourier.rfft if onesided else fourier.fft
    spectra = transform(frames, norm="ortho" if normalized else None).transpose(-2, -1)
    spectra = spectra.squeeze(0) if input.ndim == 1 else spectra
    return spectra if return_complex in (None, True) else stack([spectra.real, spectra.imag], -1)


def _positions(x: Tensor, count: int, hop: int, n_fft: int) -> Tensor:
    """Where the elements of each frame lie, shape (count, n_fft)."""
    return arange(count, device=x.device).unsqueeze(1) * hop + arange(n_fft, device=x.device)


_NO_WINDOW = {
    "stft": "A window was not provided. A rectangular window will be applied, which is known to "
    "cause spectral leakage. Other windows such as torch.hann_window or torch.hamming_window are "
    "recommended to reduce spectral leakage. To suppress this warning and use a rectangular "
    "window, explicitly set `window=torch.ones(n_fft, device=<device>)`.",
    "istft": "A window was not provided. A rectangular window will be applied. Please provide the "
    "same window used by stft to make the inversion lossless. To suppress this warning and use a "
    "rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`.",
}


def _settings(
    name: str,
    input: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
) -> tuple[int, Tensor]:
    """The hop, and a window as long as a frame."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if hop <= 0:
        raise RuntimeError(f"{name}(): expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise RuntimeError(
            f"{name}(): expected 0 < win_length <= n_fft, but got win_length={length} and "
            f"n_fft={n_fft}"
        )
    if window is None:
        warn_user(_NO_WINDOW[name])
        d = fourier.REAL.get(input.dtype, input.dtype)
        window = ones(length, dtype=d, device=input.device)
    if tuple(window.shape) != (length,):
        raise RuntimeError(
            f"{name}(): expected a 1D window tensor of size equal to win_length={length}, but got "
            f"window with size {list(window.shape)}"
        )
    before = (n_fft - length) // 2
    return hop, pad(window, (before, n_fft - length - before))


@op
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` is nearest (Griffin and Lim, 1984, (6)): frames are laid over each
    other and divided by the sum of the windows' squares.

    Parameters
    ----------
    input : Tensor, shape (..., frequencies, frames)
        Complex.
    length : int, optional
        Of the signal; cut off or filled up with zeros.

    Raises
    ------
    RuntimeError
        If the windows leave a part of the signal at zero.
    """
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"istft(): expected a tensor with 2 or 3 dimensions, but got {input.ndim}"
        )
    onesided = input.shape[-2] != n_fft if onesided is None else onesided
    rows = n_fft // 2 + 1 if onesided else n_fft
    if input.shape[-2] != rows:
        raise RuntimeError(
            "istft(): expected the frequency dimension (3rd to the last) of the input tensor to "
            f"match n_fft / 2 + 1 when onesided=True, or n_fft, but got {input.shape[-2]}"
        )
    hop, taper = _settings("istft", input, n_fft, hop_length, win_length, window)
    x = (input.unsqueeze(0) if input.ndim == 2 else input).transpose(-2, -1)
    inverse: Any = fourier.ifft if return_complex else fourier.irfft  # which reads one side
    frames = inverse(x, n_fft, norm="ortho" if normalized else None)
    signal = _overlapped(frames, taper, hop, n_fft)
    start = n_fft // 2 if center else 0
    end = signal[0].shape[-1] - start if length is None else start + length
    total, weight = [part[..., start : min(end, part.shape[-1])] for part in signal]
    smallest = weight.detach().abs().amin().item() if weight.numel() else 1.0
    if smallest < 1e-11:
        raise RuntimeError(
            f"istft(): window overlap add min: {smallest} < 1e-11: the windows leave a part of the "
            "signal at zero; take center=True, another window or a smaller hop_length"
        )
    reconstructed = total / weight
    if length is not None and reconstructed.shape[-1] < length:
        warn_user(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings."
        )
        reconstructed = pad(reconstructed, (0, length - reconstructed.shape[-1]))
    return reconstructed.squeeze(0) if input.ndim == 2 else reconstructed


def _overlapped(frames: Tensor, taper: Tensor, hop: int, n_fft: int) -> tuple[Tensor, Tensor]:
    """Sums of frames where they lie, and of the squares of their windows."""
    count = frames.shape[-2]
    places = _positions(frames, count, hop, n_fft).reshape(-1)
    extent = n_fft + hop * (count - 1)
    weighted: Any = (frames * taper).flatten(-2)
    total = weighted.new_zeros((weighted.shape[0], extent)).index_add(1, places, weighted)
    squares = (taper * taper).expand(count, n_fft).reshape(-1)
    return total, squares.new_zeros((extent,)).index_add(0, places, squares)


METHODS = (stft, istft)
FUNCTIONS = METHODS
