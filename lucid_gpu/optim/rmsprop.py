"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, descent
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Optimizer):
    r"""Gradients divided by the root of their running mean square (Hinton, lecture 6e, 2012).

    ``v = alpha v + (1 - alpha) g^2`` and ``p = p - lr * g / (sqrt(v) + eps)``; centered (Graves,
    Generating sequences with recurrent neural networks, 2013), ``v`` is less the square of the
    running mean of ``g``; with momentum ``b = momentum * b + g / (...)`` and ``p = p - lr * b``.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr, alpha, eps, weight_decay, momentum : float
    centered : bool
    foreach, capturable, maximize, differentiable
        See `Adam`.
    """

    _numbers = ("step",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params, settings(locals(), "lr", "eps", "momentum", "weight_decay", "alpha")
        )

    def _update(self, group: Group, members: list[Member]) -> None:
        states = ("square_avg",)
        states += ("grad_avg",) * group["centered"]
        states += ("momentum_buffer",) * (group["momentum"] > 0)
        self._begin(members, states)
        names = ("eps", "weight_decay", "momentum", "centered", "maximize")
        numbers = {"lr": group["lr"], "alpha": group["alpha"], "new": 1 - group["alpha"]}
        self._apply(_rmsprop, members, states, numbers, **chosen(group, *names))


def _rmsprop(
    p: Tensor,
    v: Tensor,
    *rest: Tensor,
    lr: Tensor,
    alpha: Tensor,
    new: Tensor,
    eps: Tensor | float,
    weight_decay: Tensor | float,
    momentum: float,
    centered: bool,
    maximize: bool,
) -> tuple[Tensor, ...]:
    *more, g = rest
    g = descent(p, g, weight_decay, maximize)
    made = [v * alpha + g * g * new]
    variance = made[0]
    if centered:
        mean = more.pop(0)
        made.append(mean + (g - mean) * new)
        variance = variance - made[-1] * made[-1]
    change = g / (variance.sqrt() + eps)
    if more:
        change = more[0] * momentum + change
        made.append(change)
    return (p - change * lr, *made)


rmsprop = step_of_lists(
    RMSprop,
    {
        "square_avgs": "square_avg",
        "grad_avgs": "grad_avg",
        "momentum_buffer_list": "momentum_buffer",
    },
    "foreach maximize differentiable capturable has_complex",
    "lr alpha eps weight_decay momentum centered",
)
