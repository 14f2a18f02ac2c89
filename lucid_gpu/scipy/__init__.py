"""SciPy's functions with gradients.

``from lucid_gpu.scipy import special`` stands where a program says ``from scipy import special``. A
function called with arrays of NumPy or CuPy is SciPy's or CuPy's own. Where an argument is a
`Tensor`, or inside `lucid_gpu.numpy.grad`, the values are computed by that library, and the result
can be differentiated. SciPy is the extra ``scipy`` of this package.

Examples
--------
>>> import lucid_gpu.numpy as np
>>> from lucid_gpu.scipy import special
>>> slope = np.grad(lambda v: special.jv(0, v))
>>> round(float(slope(1.0)), 6)  # -J1(1)
-0.440051
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse"]
__all__ += ["special", "stats"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    known = ", ".join(__all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {known}")


def __dir__() -> list[str]:
    return __all__
