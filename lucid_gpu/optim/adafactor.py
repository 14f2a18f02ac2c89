"""Adafactor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lucid_gpu.dtypes import finfo
from lucid_gpu.optim.optimizer import Group, Member, Optimizer
from lucid_gpu.tensor import Tensor

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    r"""Adam's second moments by their row and column means only (Shazeer and Stern, 2018).

    With ``b = t^beta2_decay`` the means of ``g^2`` along the last two dimensions follow as
    ``r = r + b (mean(g^2, -1) - r)`` and ``c`` alike; ``v = r c / max(mean(r), eps1)`` (a vector
    keeps ``v`` itself), ``u = g / sqrt(max(v, eps1^2))``, and the parameter falls by
    ``max(eps2, rms(p)) min(lr, 1 / sqrt(t)) u / max(1, rms(u) / d)``: Adafactor: adaptive learning
    rates with sublinear memory cost.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, or of dict
    lr : float
    beta2_decay : float
        Not positive: how fast the means become longer.
    eps : (float or None, float)
        ``eps1``, by default that of the type, and ``eps2``.
    d : float
        At least 1: where updates are clipped.
    weight_decay : float
        See `AdamW`.
    foreach
        Taken and without effect.
    maximize : bool

    Raises
    ------
    ValueError
        For invalid settings.
    """

    _numbers = ("step",)
    _takes_complex = False
    _reads_whole = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for label, value, bound, fits in (
            ("Learning rate", lr, ">= 0", lr >= 0),
            ("beta2_decay", beta2_decay, "<= 0", beta2_decay <= 0),
            ("epsilon1", eps[0], ">= 0", eps[0] is None or eps[0] >= 0),
            ("epsilon2", eps[1], ">= 0", eps[1] >= 0),
            ("Clipping threshold d", d, ">= 1", d >= 1),
            ("weight_decay", weight_decay, ">= 0", weight_decay >= 0),
        ):
            if not fits:
                raise ValueError(f"{label} should be {bound} but is: {value}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _update(self, group: Group, members: list[Member]) -> None:
        lr, eps2 = float(group["lr"]), group["eps"][1]
        self._begin(members)
        for p, g, state in members:
            g = -g if group["maximize"] else g
            step, eps1 = state["step"], group["eps"][0]
            eps1 = finfo(p.dtype).eps if eps1 is None else eps1
            u = g * _second_moment(g, state, step ** group["beta2_decay"], eps1).rsqrt()
            size = _rms(p).clamp(min=eps2) * min(lr, 1 / step**0.5)
            clip = (_rms(u) / group["d"]).clamp(min=1.0)
            p.copy_(p * (1 - lr * group["weight_decay"]) - u * (size / clip))
            self._updated.append(state)


def _second_moment(g: Tensor, state: dict[str, Any], new: float, least: float) -> Tensor:
    """The estimate of ``g^2``; what it is made of is kept in the state."""
    square = g * g
    if g.ndim < 2:
        v = _followed(state, "variance", square, new)
    else:
        rows = _followed(state, "row_var", square.mean(-1, keepdim=True), new)
        columns = _followed(state, "col_var", square.mean(-2, keepdim=True), new)
        v = rows * columns / rows.mean(-2, keepdim=True).clamp(min=least)
    return v.clamp(min=least * least)


def _followed(state: dict[str, Any], name: str, value: Tensor, new: float) -> Tensor:
    """A running mean, written in place."""
    if name not in state:
        state[name] = value.new_zeros(value.shape)
    mean: Tensor = state[name]
    return mean.copy_(mean + (value - mean) * new)


def _rms(t: Tensor) -> Tensor:
    return t.norm(2) / math.sqrt(t.numel())
