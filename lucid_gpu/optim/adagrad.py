"""Adagrad."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, descent, filled_as
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Optimizer):
    r"""Gradients divided by the root of the sum of their squares (Duchi et al., 2011).

    ``v = v + g^2`` and ``p = p - lr / (1 + (t - 1) lr_decay) * g / (sqrt(v) + eps)``: Adaptive
    subgradient methods for online learning and stochastic optimization.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr, lr_decay, weight_decay : float
    initial_accumulator_value : float
        The initial value of ``v``.
    eps : float
    foreach, maximize, differentiable, fused
        See `Adam`.
    """

    _numbers = ("step",)
    _takes_sparse = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            settings(
                locals(), "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"
            ),
        )

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            total = filled_as(p, group["initial_accumulator_value"])
            self.state[p] = {"step": 0.0, "sum": total}

    def _update(self, group: Group, members: list[Member]) -> None:
        if self._listed and group["weight_decay"] and any(g._is_sparse for _, g, _ in members):
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        self._begin(members, ("sum",))
        common = chosen(group, "eps", "weight_decay", "maximize")
        for (step,), some in self._alike(members).items():
            numbers = {"lr": group["lr"] / (1 + (step - 1) * group["lr_decay"])}
            self._apply(_adagrad, some, ("sum",), numbers, **common)


def _adagrad(
    p: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    lr: Tensor,
    eps: Tensor | float,
    weight_decay: Tensor | float,
    maximize: bool,
) -> tuple[Tensor, ...]:
    g = descent(p, g, weight_decay, maximize)
    v = v + g * g
    return p - g / (v.sqrt() + eps) * lr, v


adagrad = step_of_lists(
    Adagrad,
    {"state_sums": "sum"},
    "fused grad_scale found_inf has_sparse_grad foreach differentiable has_complex",
    "lr weight_decay lr_decay eps maximize",
)
