"""Samples of distributions that take rejection, and how gamma samples move with their shape.

They are made by NumPy on the host, from a Philox stream of their own for each draw, so that all
devices get the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid_gpu.devices.threads import run_quietly

__all__ = ["gamma_slope", "stream"]

LARGE = 1000.0  # shapes from which on an expansion is used


def stream(seed: int, draw: int) -> np.random.Generator:
    """NumPy's generator for one draw of a seed."""
    return np.random.Generator(np.random.Philox(key=[seed, draw]))


def gamma_slope(alpha: Any, z: Any, psi: Any) -> Any:
    """How a sample of Gamma(alpha, 1) moves with alpha while its quantile stays: float64.

    ``psi`` is ``digamma(alpha + 1)``.

    ``-(dP/dalpha) / (dP/dz)`` of the distribution function P (M. Figurnov, S. Mohamed, A. Mnih,
    "Implicit Reparameterization Gradients", 2018). P is differentiated term by term in its series
    ``sum_k z**(alpha + k) exp(-z) / gamma(alpha + k + 1)``; large shapes take the first terms of
    Cornish and Fisher's expansion.
    """
    result: Any = run_quietly(_gamma_slope, alpha, z, psi)
    return result


def _gamma_slope(alpha: Any, z: Any, psi: Any) -> Any:
    large = alpha > LARGE
    slope = _by_series(np.where(large, 1.0, alpha), np.where(large, 1.0, z), psi)
    return np.where(large, _by_expansion(alpha, z), slope)


def _by_series(alpha: Any, z: Any, psi: Any) -> Any:
    log_z = np.log(z)
    share, at = z / alpha, alpha + 1
    total = share * (psi - log_z)
    while (share > 1e-17 * np.abs(total)).any():  # as many terms as z and some deviations
        share = share * z / at
        psi = psi + 1 / at
        at = at + 1
        total += share * (psi - log_z)
    return total


def _by_expansion(alpha: Any, z: Any) -> Any:
    root = np.sqrt(alpha)
    x = 3 * root * (np.cbrt(z / alpha) - 1 + 1 / (9 * alpha))  # Wilson and Hilferty: nearly normal
    return 1 + x / (2 * root) - (x**3 - 7 * x) / (72 * alpha * root)
