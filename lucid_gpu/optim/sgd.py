"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, descent
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    r"""Stochastic gradient descent with momentum.

    ``b = momentum * b + (1 - dampening) * g`` (the first time ``b = g``), then
    ``p = p - lr * b``, or with Nesterov ``p = p - lr * (g + momentum * b)``, where ``g`` is the
    gradient (its negative to maximize) plus ``weight_decay * p``. Sutskever et al., On the
    importance of initialization and momentum in deep learning, 2013.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
    momentum, dampening, weight_decay : float
    nesterov, maximize : bool
    foreach, fused
        Accepted for compatibility; all updates are fused.
    differentiable : bool
        Record the step, so that gradients flow through it.

    Raises
    ------
    ValueError
        For invalid rates and other settings, and Nesterov's step without momentum or
        dampened.
    """

    _takes_sparse = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = settings(locals(), "lr", "momentum", "weight_decay")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults)

    def _update(self, group: Group, members: list[Member]) -> None:
        common = chosen(group, "weight_decay", "maximize")
        if self._listed and (group["momentum"] or group["weight_decay"]):  # which all rows feel
            members = [(p, g.to_dense(), state) for p, g, state in members]
        numbers = {"lr": group["lr"]}
        if not group["momentum"]:
            self._apply(_plain, members, (), numbers, **common)
            return
        numbers["momentum"] = group["momentum"]  # which schedulers may change each step
        common |= chosen(group, "nesterov")
        name = "momentum_buffer"
        fresh = [member for member in members if member[2].get(name) is None]
        later = [member for member in members if member[2].get(name) is not None]
        for p, _, state in fresh:
            state[name] = zeros_like(p)
        # At first b = g: the buffer is zero, so leaving out the dampening says the same.
        for some, dampening in ((fresh, 0.0), (later, group["dampening"])):
            if some:
                self._apply(_with_momentum, some, (name,), numbers, dampening=dampening, **common)


def _plain(
    p: Tensor, g: Tensor, *, lr: Tensor, weight_decay: Tensor | float, maximize: bool
) -> tuple[Tensor, ...]:
    return (p - descent(p, g, weight_decay, maximize) * lr,)


def _with_momentum(
    p: Tensor,
    b: Tensor,
    g: Tensor,
    *,
    lr: Tensor,
    momentum: Tensor,
    dampening: Tensor | float,
    weight_decay: Tensor | float,
    nesterov: bool,
    maximize: bool,
) -> tuple[Tensor, ...]:
    g = descent(p, g, weight_decay, maximize)
    b = b * momentum + g * (1 - dampening)
    return p - ((g + b * momentum) if nesterov else b) * lr, b


sgd = step_of_lists(
    SGD,
    {"momentum_buffer_list": "momentum_buffer"},
    "has_sparse_grad foreach fused grad_scale found_inf",
    "weight_decay momentum lr dampening nesterov maximize",
    gradients="d_p_list",
    steps=(),
)
