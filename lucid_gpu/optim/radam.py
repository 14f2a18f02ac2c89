"""RAdam."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, moments, shares
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["RAdam", "radam"]


class RAdam(Optimizer):
    r"""Adam whose early steps do not trust the variance.

    Liu et al., On the variance of the adaptive learning rate and beyond, 2020.

    ``m`` and ``v`` as in `Adam`; ``rho = r - 2 t b2^t / (1 - b2^t)`` with ``r = 2 / (1 - b2) - 1``
    says how many values ``v`` averages. Up to 5, ``p = p - lr * m / (1 - b1^t)``; above, that step
    is divided by ``(sqrt(v) + eps) / sqrt(1 - b2^t)`` and multiplied by
    ``sqrt((rho - 4)(rho - 2) r / ((r - 4)(r - 2) rho))``.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
    betas : pair of float
    eps, weight_decay : float
    decoupled_weight_decay : bool
        Shrink parameters apart from the gradient, as `AdamW` does.
    foreach, capturable, maximize, differentiable
        See `Adam`.
    """

    _numbers = ("step",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, settings(locals(), "lr", "eps", "betas", "weight_decay"))

    def _update(self, group: Group, members: list[Member]) -> None:
        states = ("exp_avg", "exp_avg_sq")
        self._begin(members, states)
        lr, (b1, b2) = group["lr"], group["betas"]
        common = chosen(group, "eps", "weight_decay", "decoupled_weight_decay", "maximize")
        for (step,), some in self._alike(members).items():
            rectified = _rectification(step, b2)
            numbers = {
                "step_size": lr / (1 - b1**step) * (rectified or 1.0),
                "kept": 1 - lr * group["weight_decay"],
                **shares(group["betas"]),
            }
            adaptive = rectified is not None
            self._apply(_radam, some, states, numbers, adaptive=adaptive, **common)


def _rectification(step: float, b2: float) -> float | None:
    """What the adaptive step is multiplied by; None while ``v`` averages too few values."""
    left = 1 - b2**step
    r = 2 / (1 - b2) - 1
    rho = r - 2 * step * b2**step / left
    if rho <= 5:
        return None
    return sqrt((rho - 4) * (rho - 2) * r / ((r - 4) * (r - 2) * rho) * left)


def _radam(
    p: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    step_size: Tensor,
    adaptive: bool,
    eps: Tensor | float,
    **common: Any,
) -> tuple[Tensor, ...]:
    p, m, v, _ = moments(p, m, v, g, **common)
    return p - (m / (v.sqrt() + eps) if adaptive else m) * step_size, m, v


radam = step_of_lists(
    RAdam,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq"},
    "decoupled_weight_decay foreach differentiable capturable has_complex maximize",
    "beta1 beta2 lr weight_decay eps",
)
