"""Special functions with gradients, where SciPy looks for them: in a namespace's ``special``.

A later version of the standard may have such an extension
(https://github.com/data-apis/array-api/issues/725).
"""

from __future__ import annotations

from collections.abc import Callable

from lucid_gpu import special as ours
from lucid_gpu.array_api.elementwise import on_promoted
from lucid_gpu.tensor import Tensor

NAMES = "digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln log1p log_ndtr logit ndtr "
NAMES += "ndtri psi sinc xlog1py xlogy zeta"


def __getattr__(name: str) -> Callable[..., Tensor]:
    if name not in NAMES.split():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = on_promoted(name, getattr(ours, name))
    return found
