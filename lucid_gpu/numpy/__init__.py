"""NumPy's functions with gradients, and functions of arrays differentiated.

``import lucid_gpu.numpy as np`` stands where a program says ``import numpy as np``. A function here
is NumPy's own and takes arrays of NumPy and CuPy as ever. Where an argument is a `Tensor`, NumPy
hands the call on (NEP 13, NEP 18), and the result is a tensor that can be differentiated. `grad`
and the other transformations call a function with tensors in the place of its arrays.

Examples
--------
>>> import lucid_gpu.numpy as np
>>> slope = np.grad(lambda x: np.sum(np.sin(x) ** 2))
>>> slope(np.array([0.0, np.pi / 4]))
array([0., 1.])
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from lucid_gpu.numpy.creation import (
    LISTS,
    array,
    asanyarray,
    asarray,
    ascontiguousarray,
    c_,
    of_lists,
    r_,
)
from lucid_gpu.numpy.differentiation import (
    checkpoint,
    elementwise_grad,
    grad,
    hessian,
    jacobian,
    value_and_grad,
)
from lucid_gpu.numpy.directional import (
    grad_and_aux,
    hessian_vector_product,
    make_ggnvp,
    make_jvp,
    make_vjp,
)

__all__ = ["array", "asanyarray", "asarray", "ascontiguousarray", "c_", "checkpoint"]
__all__ += ["elementwise_grad", "r_"]
__all__ += ["grad", "grad_and_aux", "hessian", "hessian_vector_product", "jacobian", "make_ggnvp"]
__all__ += ["make_jvp", "make_vjp", "value_and_grad"]
__all__ = sorted({*__all__, *_numpy.__all__})


def __getattr__(name: str) -> Any:
    """What is NumPy's own: functions, types, constants, ``linalg``, ``fft`` and ``random``."""
    try:
        attribute = of_lists(name) if name in LISTS.split() else getattr(_numpy, name)
    except AttributeError:
        from difflib import get_close_matches

        close = get_close_matches(name, __all__, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module 'lucid_gpu.numpy' has no attribute {name!r}{hint}") from None
    if not name.startswith("__"):
        globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return __all__
