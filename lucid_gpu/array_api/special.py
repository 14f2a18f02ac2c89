"""Special functions with gradients, where SciPy looks for them: in a namespace's ``special``.

A later version of the standard may have such an extension
(https://github.com/data-apis/array-api/issues/725). What SciPy does not find here it computes
itself, from arrays, and so refuses tensors that require grad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import special as ours
from lucid_gpu.array_api.elementwise import on_promoted
from lucid_gpu.autograd.function import Function
from lucid_gpu.numpy.shapes import broadcast_arrays
from lucid_gpu.ops.creation import tensor
from lucid_gpu.tensor import Tensor

NAMES = "digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln log1p log_ndtr logit ndtr "
NAMES += "ndtri psi sinc xlog1py xlogy zeta"


def __getattr__(name: str) -> Callable[..., Tensor]:
    operation = OPERATIONS.get(name) or (getattr(ours, name) if name in NAMES.split() else None)
    if operation is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = globals()[name] = on_promoted(name, operation)
    return function


def _betaln(a: Any, b: Any) -> Tensor:
    log_beta: Tensor = ours.gammaln(a) + ours.gammaln(b) - ours.gammaln(a + b)
    return log_beta


def _fdtrc(dfn: Any, dfd: Any, x: Any) -> Any:
    return OPERATIONS["betainc"](dfd / 2, dfn / 2, dfd / (dfd + dfn * x))


# --- distribution functions: integrals of a density from 0 to x -----------------------------------


def _log_gamma_density(a: Tensor, x: Tensor) -> Tensor:
    return ours.xlogy(a - 1, x) - x - ours.gammaln(a)


def _log_beta_density(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    return ours.xlogy(a - 1, x) + ours.xlog1py(b - 1, -x) - _betaln(a, b)


def _integral(name: str, sign: int, log_density: Callable[..., Tensor]) -> Callable[..., Any]:
    """SciPy's value, computed on the host, and its derivative by the last operand, the density."""

    class Integral(Function):
        @staticmethod
        def forward(ctx: Any, *operands: Tensor) -> Tensor:
            from scipy.special import _ufuncs

            ctx.save_for_backward(*operands)
            arrays = [t.detach().cpu().numpy() for t in operands]
            values = getattr(_ufuncs, name)(*arrays)
            return tensor(values, dtype=operands[-1].dtype, device=operands[-1].device)

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
            *shape, x = ctx.saved_tensors
            if any(ctx.needs_input_grad[:-1]):
                raise RuntimeError(
                    f"{name} has a gradient by its last argument only, but another one requires "
                    "grad. Give it t.detach() if that is meant"
                )
            return (None,) * len(shape) + (cotangent * log_density(*shape, x).exp() * sign,)

    Integral.__name__ = name

    def function(*operands: Any) -> Any:
        like = next(v for v in operands if isinstance(v, Tensor))
        tensors = [v if isinstance(v, Tensor) else like.new_tensor(v) for v in operands]
        return Integral.apply(*broadcast_arrays(*[t.to(like.dtype) for t in tensors]))

    return function


OPERATIONS: dict[str, Callable[..., Any]] = {
    "betainc": _integral("betainc", 1, _log_beta_density),
    "betaln": _betaln,
    "fdtrc": _fdtrc,
    "gammainc": _integral("gammainc", 1, _log_gamma_density),
    "gammaincc": _integral("gammaincc", -1, _log_gamma_density),
}
