"""NAdam."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, moments, rounded, shares
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["NAdam", "nadam"]


class NAdam(Optimizer):
    r"""Adam with Nesterov momentum (Dozat, Incorporating Nesterov momentum into Adam, 2016).

    ``m`` and ``v`` as in `Adam`, ``mu_t = b1 (1 - 0.96^(t momentum_decay) / 2)``, ``M_t`` the
    product of ``mu_1`` to ``mu_t``, and ``p = p - lr * ((1 - mu_t) / (1 - M_t) * g +
    mu_{t+1} / (1 - M_{t+1}) * m) / (sqrt(v / (1 - b2^t)) + eps)``.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
    betas : pair of float
    eps, weight_decay, momentum_decay : float
    decoupled_weight_decay : bool
        Shrink parameters apart from the gradient, as `AdamW` does.
    foreach, capturable, maximize, differentiable
        See `Adam`.
    """

    _numbers = ("step", "mu_product")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params, settings(locals(), "lr", "eps", "betas", "weight_decay", "momentum_decay")
        )

    def _update(self, group: Group, members: list[Member]) -> None:
        states = ("exp_avg", "exp_avg_sq")
        self._begin(members, states, mu_product=1.0)
        lr, (b1, b2), decay = group["lr"], group["betas"], group["momentum_decay"]
        common = chosen(group, "eps", "weight_decay", "decoupled_weight_decay", "maximize")
        for (step, product), some in self._alike(members).items():
            mu, following = (b1 * (1 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1))
            product = rounded(product * rounded(mu))
            for _, _, state in some:
                state["mu_product"] = product
            numbers = {
                "of_gradient": lr * (1 - mu) / (1 - product),
                "of_mean": lr * following / (1 - product * following),
                "root_correction": 1 / sqrt(1 - b2**step),
                "kept": 1 - lr * group["weight_decay"],
                **shares(group["betas"]),
            }
            self._apply(_nadam, some, states, numbers, **common)


def _nadam(
    p: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    of_gradient: Tensor,
    of_mean: Tensor,
    root_correction: Tensor,
    eps: Tensor | float,
    **common: Any,
) -> tuple[Tensor, ...]:
    p, m, v, g = moments(p, m, v, g, **common)
    return p - (g * of_gradient + m * of_mean) / (v.sqrt() * root_correction + eps), m, v


nadam = step_of_lists(
    NAdam,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "mu_products": "mu_product"},
    "decoupled_weight_decay foreach capturable differentiable has_complex maximize",
    "beta1 beta2 lr weight_decay momentum_decay eps",
)
