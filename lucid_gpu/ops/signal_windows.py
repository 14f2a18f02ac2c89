"""Windows that signals are multiplied by: hann, hamming, blackman, bartlett, kaiser."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import as_dtype
from lucid_gpu.ops.creation import arange, ones
from lucid_gpu.ops.registry import named
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

Shape = Callable[[Tensor, float], Tensor]  # of positions and the last of them


def _made(
    name: str,
    shape: Shape,
    window_length: int,
    periodic: bool,
    dtype: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    """Computed in float64; a periodic window is one longer, without its last value."""
    d = dt.get_default_dtype() if dtype is None else as_dtype(dtype)
    if not d.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {d}")
    if window_length < 0:
        raise RuntimeError(
            f"{name} requires non-negative window_length, got window_length={window_length}"
        )
    if window_length < 2:
        return ones(window_length, dtype=d, device=device, requires_grad=requires_grad)
    places = arange(window_length, dtype=dt.float64, device=device)
    window = shape(places, window_length - (0 if periodic else 1)).to(d)
    return window._mark(requires_grad)


def triangle(places: Tensor, last: float) -> Tensor:
    """``1 - |2 k / n - 1|``."""
    made: Tensor = 1 - (places * (2 / last) - 1).abs()
    return made


def kaisers(beta: float) -> Shape:
    """Kaiser's window, with I0 by its power series."""

    def shape(places: Tensor, last: float) -> Tensor:
        squares = (1 - (places * (2 / last) - 1).square()) * (beta * beta / 4)
        total, term, whole, last_term = 1 + squares * 0, 1 + squares * 0, 1.0, 1.0
        for k in range(1, 20 + 2 * math.ceil(abs(beta))):
            term, last_term = term * squares / (k * k), last_term * beta * beta / (4 * k * k)
            total, whole = total + term, whole + last_term
        return total / whole

    return shape


def cosines(*weights: float) -> Shape:
    """``a_0 - a_1 cos(t) + a_2 cos(2 t)`` for ``t`` around the circle."""

    def shape(places: Tensor, last: float) -> Tensor:
        turn = places * (2 * math.pi / last)
        total: Any = weights[0]
        for i, weight in enumerate(weights[1:], 1):
            total = total + (turn * i).cos() * (weight * (-1) ** i)
        made: Tensor = total
        return made

    return shape


def _of_shape(name: str, shape: Shape, doc: str) -> Callable[..., Tensor]:
    """The function that makes windows of a shape without parameters."""

    @op
    def window(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
    ) -> Tensor:
        return _made(name, shape, window_length, periodic, dtype, device, requires_grad)

    return named(window, name, doc)


hann_window = _of_shape(
    "hann_window",
    cosines(0.5, 0.5),
    """The vector ``sin(pi k / n)^2``; ``n`` is the length if ``periodic``, else one less.

    Parameters
    ----------
    window_length : int
    periodic : bool
        Whether the window is one period of a longer one, as `stft` wants it, or symmetric.

    Raises
    ------
    RuntimeError
        For a negative length, and types that are not floating point.
    """,
)
blackman_window = _of_shape(
    "blackman_window",
    cosines(0.42, 0.5, 0.08),
    """The vector ``0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n)``, with `hann_window`'s ``n``.

    RuntimeError as there.
    """,
)
bartlett_window = _of_shape(
    "bartlett_window",
    triangle,
    """The vector ``1 - |2 k / n - 1|``; ``n`` and errors as in `hann_window`.""",
)


@op
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """The vector ``alpha - beta cos(2 pi k / n)``; ``n`` and errors as in `hann_window`."""
    shape = cosines(alpha, beta)
    return _made("hamming_window", shape, window_length, periodic, dtype, device, requires_grad)


@op
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """The vector ``I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta)``, with I0 by its power series.

    ``n`` and errors as in `hann_window`: RuntimeError.
    """
    return _made(
        "kaiser_window", kaisers(beta), window_length, periodic, dtype, device, requires_grad
    )


FUNCTIONS = (hann_window, hamming_window, blackman_window, bartlett_window, kaiser_window)
