"""Muon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.optim.optimizer import Group, Member, Optimizer
from lucid_gpu.optim.settings import settings
from lucid_gpu.tensor import Tensor

__all__ = ["Muon"]

# What the learning rate is multiplied by for a matrix of so many rows and columns.
_RATES: dict[str | None, Callable[[int, int], float]] = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}
_RATES[None] = _RATES["original"]


class Muon(Optimizer):
    r"""Steps whose singular values are all about one (Jordan et al., 2024), for matrices.

    ``m = m + (1 - momentum) (g - m)``, with Nesterov ``g + momentum (m - g)`` for it; this matrix
    divided by its norm goes ``ns_steps`` times through ``a X + b (X X^T) X + c (X X^T)^2 X`` in
    bfloat16, which leaves its singular vectors and brings its singular values near one: Muon, an
    optimizer for hidden layers in neural networks.

    Parameters
    ----------
    params : iterable of Tensor or of dict
        Matrices; other parameters, and embeddings, take `AdamW`.
    lr : float
    weight_decay : float
        See `AdamW`.
    momentum : float
    nesterov : bool
    ns_coefficients : (float, float, float)
        ``a``, ``b`` and ``c``.
    eps : float
        The least norm that is divided by.
    ns_steps : int
    adjust_lr_fn : {"original", "match_rms_adamw"}, optional
        The rate times ``sqrt(max(1, rows / columns))``, or times ``0.2 sqrt(max(rows, columns))``,
        which suits rates of `AdamW` (Liu et al., Muon is scalable for LLM training, 2025).

    Raises
    ------
    ValueError
        For invalid settings, and parameters that are not matrices.
    """

    _takes_complex = False
    _reads_whole = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        defaults = settings(locals())
        for label, value in (
            ("Learning rate", lr),
            ("momentum", momentum),
            ("weight decay", weight_decay),
        ):
            if not value >= 0:
                raise ValueError(f"{label} should be >= 0 but is: {value}")
        if adjust_lr_fn not in _RATES:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                del self.param_groups[-1]
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{p.shape}"
                )

    def _update(self, group: Group, members: list[Member]) -> None:
        lr, momentum = float(group["lr"]), group["momentum"]
        for p, g, state in members:
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = zeros_like(g)
            mean = state["momentum_buffer"]
            mean.lerp_(g, 1 - momentum)
            step = g.lerp(mean, momentum) if group["nesterov"] else mean
            step = _orthogonal(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
            rate = lr * _RATES[group["adjust_lr_fn"]](*p.shape)
            p.copy_(p * (1 - lr * group["weight_decay"]) - step.to(p.dtype) * rate)
            self._updated.append(state)


def _orthogonal(
    g: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """A matrix with the singular vectors of ``g``, by Newton and Schulz's iteration."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = g.shape[0] > g.shape[1]
    x = (g.t() if tall else g).bfloat16()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = x.addmm(gram.addmm(gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x
