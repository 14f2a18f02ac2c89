"""Discrete Fourier transforms: PyTorch's ``torch.fft``.

They have gradients of every order: the adjoint of a transform is a transform.
"""

from __future__ import annotations

from lucid_gpu.ops.arguments import public
from lucid_gpu.ops.fourier import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)
from lucid_gpu.ops.registry import findable
from lucid_gpu.tape.overrides import METHODS

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft",
    "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

for _name in __all__:
    if type(globals()[_name]) in METHODS:
        globals()[_name] = public(globals()[_name])  # with out=
findable(globals(), __name__)
