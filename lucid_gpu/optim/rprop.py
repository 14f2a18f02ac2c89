"""Resilient backpropagation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.ops.elementwise import where
from lucid_gpu.optim.functional_steps import step_of_lists
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, descent, filled_as
from lucid_gpu.optim.settings import settings
from lucid_gpu.tensor import Tensor

__all__ = ["Rprop", "rprop"]


class Rprop(Optimizer):
    r"""Steps that look at the signs of gradients only (Riedmiller and Braun, 1993).

    Each element's step grows by ``etas[1]`` where its gradient keeps its sign and shrinks by
    ``etas[0]``, and the gradient counts as zero, where it changed; ``p = p - step * sign(g)``: A
    direct adaptive method for faster backpropagation learning.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
        The first step.
    etas, step_sizes : pair of float
        Factors of steps, and their bounds.
    foreach, capturable, maximize, differentiable
        See `Adam`.
    """

    _numbers = ("step",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, settings(locals(), "lr", "etas"))

    def _update(self, group: Group, members: list[Member]) -> None:
        for p, _, state in members:
            if "step_size" not in state:
                state["step_size"] = filled_as(p, float(group["lr"]))
        states = ("prev", "step_size")
        self._begin(members, states)
        names = ("slower", "faster", "least", "most")
        values = (*group["etas"], *group["step_sizes"])
        numbers = dict(zip(names, values, strict=True))
        self._apply(_rprop, members, states, numbers, maximize=group["maximize"])


def _rprop(
    p: Tensor,
    before: Tensor,
    size: Tensor,
    g: Tensor,
    *,
    slower: Tensor,
    faster: Tensor,
    least: Tensor,
    most: Tensor,
    maximize: bool,
) -> tuple[Tensor, ...]:
    g = descent(p, g, 0, maximize)
    kept = g * before
    turned = kept < 0
    factor = where(turned, slower, where(kept > 0, faster, 1.0))
    size = (size * factor).clamp(min=least).clamp(max=most)
    g = g.masked_fill(turned, 0.0)
    return p - g.sign() * size, g, size


rprop = step_of_lists(
    Rprop,
    {"prevs": "prev", "step_sizes": "step_size"},
    "foreach capturable maximize differentiable has_complex",
    "step_size_min step_size_max etaminus etaplus",
)
