"""`scipy.special` with derivatives."""

from __future__ import annotations

from typing import Any

from lucid_gpu.scipy.rows import elementwise, others

__all__ = ["jv"]

jv: Any = elementwise(
    "special.jv",
    "v z",
    {"z": lambda v, z: (jv(v - 1, z) - jv(v + 1, z)) / 2},  # DLMF 10.6.1
    of="the Bessel function of the first kind of order `v` at `z`",
)

__getattr__ = others("special", globals())
