"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, descent, rounded
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["ASGD", "asgd"]


class ASGD(Optimizer):
    r"""Stochastic gradient descent that keeps a mean of the parameters (Polyak and Juditsky, 1992).

    ``p = p (1 - lambd eta) - eta g``, ``ax = ax + mu (p - ax)``, then
    ``eta = lr / (1 + lambd lr t)^alpha`` and ``mu = 1 / max(1, t - t0)``: Acceleration of
    stochastic approximation by averaging. The mean stands in ``optimizer.state[p]["ax"]``.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr, lambd, alpha, t0, weight_decay : float
    foreach, capturable, maximize, differentiable
        See `Adam`.
    """

    _numbers = ("step", "eta", "mu")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, settings(locals(), "lr", "weight_decay"))

    def _update(self, group: Group, members: list[Member]) -> None:
        lr, lambd = float(group["lr"]), group["lambd"]
        self._begin(members, ("ax",), eta=rounded(lr), mu=1.0)
        for (step, eta, mu), some in self._alike(members).items():
            numbers = {"eta": eta, "kept": 1 - lambd * eta, "mu": mu}
            self._apply(_asgd, some, ("ax",), numbers, **chosen(group, "weight_decay", "maximize"))
            eta = rounded(lr / (1 + lambd * lr * step) ** group["alpha"])
            mu = rounded(1 / max(1.0, step - group["t0"]))
            for _, _, state in some:
                state["eta"], state["mu"] = eta, mu


def _asgd(
    p: Tensor,
    mean: Tensor,
    g: Tensor,
    *,
    eta: Tensor,
    kept: Tensor,
    mu: Tensor,
    weight_decay: Tensor | float,
    maximize: bool,
) -> tuple[Tensor, ...]:
    p = p * kept - descent(p, g, weight_decay, maximize) * eta
    return p, mean + (p - mean) * mu


asgd = step_of_lists(
    ASGD,
    {"axs": "ax", "mus": "mu", "etas": "eta"},
    "foreach maximize differentiable capturable has_complex",
    "lambd lr t0 alpha weight_decay",
)
