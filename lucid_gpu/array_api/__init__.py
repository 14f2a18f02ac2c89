"""The array API standard 2024.12 on tensors: what ``Tensor.__array_namespace__()`` gives.

Programs written for any array library (SciPy, scikit-learn) ask an array for its namespace and
call the functions of the standard. Here these are the ops of `lucid_gpu` and the functions of
`lucid_gpu.numpy` under the standard's names: tensors come in, tensors go out, gradients flow.

References
----------
https://data-apis.org/array-api/2024.12/

Examples
--------
>>> import lucid_gpu
>>> x = lucid_gpu.tensor([3.0, 1.0, 2.0], requires_grad=True)
>>> xp = x.__array_namespace__()
>>> xp.cumulative_sum(xp.sort(x, descending=True))[1].backward()
>>> x.grad
tensor([1., 0., 1.])
"""

from __future__ import annotations

from math import e, inf, nan, pi

from lucid_gpu.array_api import (
    creation,
    elementwise,
    fft,
    info,
    linalg,
    manipulation,
    searching,
    special,
    statistics,
    types,
)
from lucid_gpu.array_api.elementwise import FUNCTIONS as _ELEMENTWISE
from lucid_gpu.dtypes import ALL as _TYPES

__array_api_version__ = "2024.12"
newaxis = None

globals().update({d.name: d for d in _TYPES}, **_ELEMENTWISE)
__all__ = ["__array_api_version__", "e", "fft", "inf", "linalg", "nan", "newaxis", "pi", "special"]
__all__ += [d.name for d in _TYPES] + [*_ELEMENTWISE]
for _family in (creation, info, manipulation, searching, statistics, types):
    globals().update({name: getattr(_family, name) for name in _family.__all__})
    __all__ += _family.__all__
for _name in ("matmul", "matrix_transpose", "tensordot", "vecdot"):
    globals()[_name] = getattr(linalg, _name)
    __all__ += [_name]
