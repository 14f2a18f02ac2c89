"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, moments, shares
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["Adam", "AdamW", "adam", "adamw"]


class Adam(Optimizer):
    r"""Adam (Kingma and Ba, Adam: a method for stochastic optimization, 2015).

    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g^2``, and
    ``p = p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)``, where ``g`` is the gradient
    (its negative to maximize) plus ``weight_decay * p``.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
    betas : pair of float
    eps, weight_decay : float
    amsgrad : bool
        Divide by the largest ``v`` so far.
    maximize : bool
    decoupled_weight_decay : bool
        Shrink parameters apart from the gradient, as `AdamW` does.
    foreach, capturable, fused
        Accepted for compatibility; all updates are fused.
    differentiable : bool
        Record the step, so that gradients flow through it.

    Raises
    ------
    ValueError
        For rates, betas and other invalid settings; what else `Optimizer` refuses.
    """

    _numbers = ("step",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, settings(locals(), "lr", "eps", "betas", "weight_decay"))

    def _update(self, group: Group, members: list[Member]) -> None:
        states: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
        if group["amsgrad"]:
            states = (*states, "max_exp_avg_sq")
        self._begin(members, states)
        b1, b2 = group["betas"]
        for (step,), some in self._alike(members).items():
            root = sqrt(1 - b2**step)  # divides sqrt(v): so numerator and eps are multiplied by it
            self._apply(
                _adam,
                some,
                states,
                {
                    "step_size": group["lr"] * root / (1 - b1**step),
                    "eps": group["eps"] * root,
                    "kept": 1 - group["lr"] * group["weight_decay"],
                    **shares(group["betas"]),
                },
                **chosen(group, "weight_decay", "decoupled_weight_decay", "maximize"),
            )


class AdamW(Adam):
    r"""Adam with decoupled weight decay (Loshchilov and Hutter, Decoupled weight decay, 2019).

    As `Adam`, but the decay does not pass through the moments: ``p = p - lr * weight_decay * p``
    first.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
    betas : pair of float
    eps, weight_decay : float
    amsgrad, maximize, foreach, capturable, differentiable, fused
        See `Adam`.

    Raises
    ------
    ValueError
        See `Adam`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        arguments = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        super().__init__(**arguments, decoupled_weight_decay=True)


def _adam(
    p: Tensor,
    m: Tensor,
    v: Tensor,
    *rest: Tensor,
    step_size: Tensor,
    eps: Tensor,
    **common: Any,
) -> tuple[Tensor, ...]:
    *largest, g = rest
    p, m, v, _ = moments(p, m, v, g, **common)
    top = [largest[0].maximum(v)] if largest else []
    scale = [v, *top][-1].sqrt() + eps
    return (p - m / scale * step_size, m, v, *top)


adam = step_of_lists(
    Adam,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "max_exp_avg_sqs": "max_exp_avg_sq"},
    "foreach capturable differentiable fused grad_scale found_inf has_complex "
    "decoupled_weight_decay",
    "amsgrad beta1 beta2 lr weight_decay eps maximize",
)
adamw = step_of_lists(
    AdamW,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "max_exp_avg_sqs": "max_exp_avg_sq"},
    "foreach capturable differentiable fused grad_scale found_inf has_complex",
    "amsgrad beta1 beta2 lr weight_decay eps maximize",
)
