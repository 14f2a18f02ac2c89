"""Adadelta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, descent
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Optimizer):
    r"""Steps in the units of the parameters (Zeiler, Adadelta: an adaptive learning rate, 2012).

    ``v = rho v + (1 - rho) g^2``, ``d = sqrt(u + eps) / sqrt(v + eps) * g``,
    ``u = rho u + (1 - rho) d^2`` and ``p = p - lr * d``.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr, rho, eps, weight_decay : float
    foreach, capturable, maximize, differentiable
        See `Adam`.
    """

    _numbers = ("step",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, settings(locals(), "lr", "rho", "eps", "weight_decay"))

    def _update(self, group: Group, members: list[Member]) -> None:
        states = ("square_avg", "acc_delta")
        self._begin(members, states)
        common = chosen(group, "eps", "weight_decay", "maximize")
        numbers = {"lr": group["lr"], "rho": group["rho"], "new": 1 - group["rho"]}
        self._apply(_adadelta, members, states, numbers, **common)


def _adadelta(
    p: Tensor,
    v: Tensor,
    u: Tensor,
    g: Tensor,
    *,
    lr: Tensor,
    rho: Tensor,
    new: Tensor,
    eps: Tensor | float,
    weight_decay: Tensor | float,
    maximize: bool,
) -> tuple[Tensor, ...]:
    g = descent(p, g, weight_decay, maximize)
    v = v * rho + g * g * new
    change = (u + eps).sqrt() / (v + eps).sqrt() * g
    return p - change * lr, v, u * rho + change * change * new


adadelta = step_of_lists(
    Adadelta,
    {"square_avgs": "square_avg", "acc_deltas": "acc_delta"},
    "capturable foreach differentiable has_complex",
    "lr rho eps weight_decay maximize",
)
