"""SparseAdam."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lucid_gpu.optim.optimizer import Group, Member, Optimizer
from lucid_gpu.optim.settings import chosen, settings
from lucid_gpu.tensor import Tensor

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    r"""`Adam` for sparse gradients: only the rows that these list and their moments change.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
        Dense ones, of `Embedding` with ``sparse=True``, say.
    lr : float
    betas : (float, float)
    eps : float
    maximize : bool

    Raises
    ------
    ValueError
        For invalid settings, and parameters that are sparse.
    """

    _takes_sparse = True
    _takes_complex = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        for label, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0:
                raise ValueError(f"Invalid {label}: {value}")
        super().__init__(params, settings(locals(), "betas"))
        indices = [
            [i, k]
            for i, group in enumerate(self.param_groups)
            for k, p in enumerate(group["params"])
            if p._is_sparse
        ]
        if indices:
            raise ValueError(
                f"Sparse params at indices {indices}: SparseAdam requires dense parameter tensors"
            )

    def _update(self, group: Group, members: list[Member]) -> None:
        if not all(g._is_sparse for _, g, _ in members):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        self._begin(members, ("exp_avg", "exp_avg_sq"))
        b1, b2 = group["betas"]
        for member in members:
            member[2]["step"] = step = int(member[2]["step"])
            rate = float(group["lr"]) * math.sqrt(1 - b2**step) / (1 - b1**step)
            numbers = {"b1": b1, "b2": b2, "rate": rate}
            common = chosen(group, "eps", "maximize")
            self._apply(_adam, [member], ("exp_avg", "exp_avg_sq"), numbers, **common)


def _adam(
    p: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    b1: float,
    b2: float,
    rate: float,
    eps: float,
    maximize: bool,
) -> tuple[Tensor, ...]:
    g = -g if maximize else g
    m, v = m + (g - m) * (1 - b1), v + (g * g - v) * (1 - b2)
    return p - m / (v.sqrt() + eps) * rate, m, v
