"""Special functions with gradients, where SciPy looks for them: in a namespace's ``special``.

A later version of the standard may have such an extension
(https://github.com/data-apis/array-api/issues/725). SciPy computes what it does not find here
itself, from arrays, and so refuses tensors that require grad.
"""

from __future__ import annotations

from collections.abc import Callable

from lucid_gpu import special as ours
from lucid_gpu.array_api.elementwise import on_promoted
from lucid_gpu.scipy import special as scipys
from lucid_gpu.tensor import Tensor

NAMES = "digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln log1p log_ndtr logit ndtr "
NAMES += "ndtri psi sinc xlog1py xlogy zeta"
BY_SCIPY = "betainc betaln fdtrc gammainc gammaincc"


def __getattr__(name: str) -> Callable[..., Tensor]:
    home = ours if name in NAMES.split() else scipys if name in BY_SCIPY.split() else None
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = globals()[name] = on_promoted(name, getattr(home, name))
    return function
