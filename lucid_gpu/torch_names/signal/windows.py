"""`torch.signal.windows`: windows that signals are multiplied by, symmetric by default.

Every function takes ``M``, the number of elements, and ``sym``: whether the window is symmetric,
or one period of a longer one. ValueError for a negative ``M``, and for types other than float32
and float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.dtypes import as_dtype, float32, float64, get_default_dtype
from lucid_gpu.ops.creation import arange, ones
from lucid_gpu.ops.signal_windows import Shape, cosines, kaisers, triangle
from lucid_gpu.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip


def _window(
    name: str,
    shape: Shape,
    M: int,
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    single: bool = True,
) -> Tensor:
    """``shape`` of the positions, computed in float64; ``single`` says that one element is 1."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and not str(layout).endswith("strided"):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    if d not in (float32, float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {d}")
    if M == 0 or (M == 1 and single):
        return ones(M, dtype=d, device=device, requires_grad=requires_grad)
    places = arange(M, dtype=float64, device=device)
    return shape(places, M - 1 if sym or M == 1 else M).to(d)._mark(requires_grad)


def _row(name: str, shape: Shape, doc: str) -> Callable[..., Tensor]:
    """A window without parameters of its own."""

    def window(
        M: int,
        *,
        sym: bool = True,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        return _window(name, shape, M, sym, dtype, layout, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = doc
    return window


_NUTTALL = cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411)
bartlett = _row(
    "bartlett",
    triangle,
    "The vector ``1 - |2 k / n - 1|``; ``n`` is ``M - 1`` if ``sym``, else ``M``.",
)
blackman = _row(
    "blackman", cosines(0.42, 0.5, 0.08), "The cosines of `general_cosine` with 0.42, 0.5 and 0.08."
)
hann = _row("hann", cosines(0.5, 0.5), "The cosines of `general_cosine` with 0.5 and 0.5.")
hamming = _row(
    "hamming", cosines(0.54, 0.46), "The cosines of `general_cosine` with 0.54 and 0.46."
)
nuttall = _row(
    "nuttall", _NUTTALL, "The cosines of `general_cosine` with Nuttall's four coefficients."
)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The cosines of `general_cosine` with ``alpha`` and ``1 - alpha``."""
    return _window(
        "general_hamming", cosines(alpha, 1 - alpha), M, sym, dtype, layout, device, requires_grad
    )


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector ``a[0] - a[1] cos(t) + a[2] cos(2 t) - ...``, where ``t = 2 pi k / n``.

    ``n`` is ``M - 1`` if ``sym``, else ``M``. TypeError if ``a`` is no sequence, ValueError if it
    is empty.
    """
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = [float(weight) for weight in a]
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    return _window(
        "general_cosine", cosines(*weights), M, sym, dtype, layout, device, requires_grad
    )


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector ``I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta)``.

    ValueError for ``beta`` below 0.
    """
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", kaisers(beta), M, sym, dtype, layout, device, requires_grad)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector ``sin(pi (k + 1/2) / m)``; ``m`` is ``M`` if ``sym``, else ``M + 1``."""

    def shape(places: Tensor, last: float) -> Tensor:
        made: Tensor = ((places + 0.5) * (math.pi / (last + 1))).sin()
        return made

    return _window("cosine", shape, M, sym, dtype, layout, device, requires_grad, single=False)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector ``exp(-(k - n / 2)^2 / (2 std^2))``; ``n`` is ``M - 1`` if ``sym``, else ``M``.

    ValueError for ``std`` that is not above 0.
    """
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def shape(places: Tensor, last: float) -> Tensor:
        made: Tensor = (((places - last / 2) / std).square() * -0.5).exp()
        return made

    return _window("gaussian", shape, M, sym, dtype, layout, device, requires_grad, single=False)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector ``exp(-|k - center| / tau)``, whose ``center`` is by default its middle.

    ValueError for ``tau`` that is not above 0, and for a ``center`` of a symmetric window.
    """
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def shape(places: Tensor, last: float) -> Tensor:
        middle = last / 2 if center is None else center
        made: Tensor = ((places - middle).abs() * (-1 / tau)).exp()
        return made

    return _window("exponential", shape, M, sym, dtype, layout, device, requires_grad, single=False)
