"""Calls of `scipy.fft`."""

from __future__ import annotations

from typing import Any

from tests.ops.samples import row, t


def apart(z: Any) -> tuple[Any, Any]:
    """Return the parts of complex numbers, which the tests look at."""
    return z.real, z.imag


ROWS = [
    row("fft.fft", t(2, 4), 3, 0, "ortho").compare(apart),
    row("fft.ifft", t(2, 4), norm="forward").compare(apart),
    row("fft.rfft", t(2, 4), 5).compare(apart),
    row("fft.irfft", t(2, 3)),
    row("fft.hfft", t(2, 3), norm="forward"),
    row("fft.ihfft", t(4), norm="ortho").compare(apart),
    row("fft.fft2", t(2, 3)).compare(apart),
    row("fft.ifft2", t(2, 3, 2), axes=(0, 1)).compare(apart),
    row("fft.rfft2", t(2, 3), (2, 2)).compare(apart),
    row("fft.irfft2", t(2, 3)),
    row("fft.hfft2", t(2, 3)),
    row("fft.ihfft2", t(2, 3)).compare(apart),
    row("fft.fftn", t(2, 3)).compare(apart),
    row("fft.ifftn", t(2, 3), (3,)).compare(apart),
    row("fft.rfftn", t(2, 3), norm="ortho").compare(apart),
    row("fft.irfftn", t(2, 3), axes=(1, 0)),
    row("fft.hfftn", t(2, 3)),
    row("fft.ihfftn", t(2, 3)).compare(apart),
    row("fft.fftshift", t(2, 3)),
    row("fft.ifftshift", t(2, 3), 1),
    *[
        row(f"fft.{kind}", t(2, 4), of, norm=norm)
        for kind in ("dct", "dst")
        for of, norm in [
            (1, None),
            (1, "ortho"),
            (2, None),
            (3, "forward"),
            (3, "ortho"),
            (4, None),
        ]
    ],
    row("fft.dct", t(4, 2), 2, 3, 0),
    row("fft.dst", t(2, 3), 2, 5),
    row("fft.idct", t(2, 4), 1),
    row("fft.idct", t(2, 4), 3, norm="forward"),
    row("fft.idst", t(4)),
    row("fft.dctn", t(2, 3)),
    row("fft.idctn", t(2, 3), s=(4,)),
    row("fft.dstn", t(2, 3), 1, (3, 2), (1, 0)),
    row("fft.idstn", t(2, 3), 4, axes=0),
    row("fft.fht", t(2, 4), 0.3, 0.5, 0.1, 0.2),
    row("fft.ifht", t(2, 4), 0.3, 0.5, 0.1, -0.2),
]
