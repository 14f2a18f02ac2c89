"""Adamax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, descent
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["Adamax", "adamax"]


class Adamax(Optimizer):
    r"""Adam by the infinity norm (Kingma and Ba, 2015, section 7.1).

    ``m = b1 m + (1 - b1) g``, ``u = max(b2 u, |g| + eps)`` and
    ``p = p - lr / (1 - b1^t) * m / u``.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
    betas : pair of float
    eps, weight_decay : float
    foreach, capturable, maximize, differentiable
        See `Adam`.
    """

    _numbers = ("step",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, settings(locals(), "lr", "eps", "betas", "weight_decay"))

    def _update(self, group: Group, members: list[Member]) -> None:
        states = ("exp_avg", "exp_inf")
        self._begin(members, states)
        b1, b2 = group["betas"]
        common = chosen(group, "eps", "weight_decay", "maximize")
        for (step,), some in self._alike(members).items():
            numbers = {"step_size": group["lr"] / (1 - b1**step)}
            self._apply(_adamax, some, states, numbers, new=1 - b1, b2=b2, **common)


def _adamax(
    p: Tensor,
    m: Tensor,
    u: Tensor,
    g: Tensor,
    *,
    step_size: Tensor,
    new: Tensor,
    b2: Tensor,
    eps: Tensor | float,
    weight_decay: Tensor | float,
    maximize: bool,
) -> tuple[Tensor, ...]:
    g = descent(p, g, weight_decay, maximize)
    m = m + (g - m) * new
    u = (u * b2).maximum(g.abs() + eps)
    return p - m / u * step_size, m, u


adamax = step_of_lists(
    Adamax,
    {"exp_avgs": "exp_avg", "exp_infs": "exp_inf"},
    "foreach maximize differentiable capturable has_complex",
    "eps beta1 beta2 lr weight_decay",
)
