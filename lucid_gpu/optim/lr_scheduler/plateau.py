"""Lower rates when a metric no longer improves."""

from __future__ import annotations

import warnings
from math import inf
from typing import Any

from lucid_gpu.optim.lr_scheduler.scheduler import (
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    checked_optimizer,
    rates_of,
    refuse_again,
    set_rate,
)
from lucid_gpu.optim.optimizer import Optimizer

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """``factor`` times less after ``patience`` steps in which the metric has not become better.

    Parameters
    ----------
    optimizer : Optimizer
    mode : {"min", "max"}
        Which metric is better.
    factor : float
    patience : int
    threshold : float
        How much better is better.
    threshold_mode : {"rel", "abs"}
    cooldown : int
        Steps after a reduction in which nothing counts as worse.
    min_lr : float or list of float
    eps : float
        The least reduction that is made.

    Raises
    ------
    ValueError
        For a factor not below 1, other modes, and another number of ``min_lr`` than of groups.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.factor = factor
        self.optimizer = checked_optimizer(optimizer)
        count, several = len(optimizer.param_groups), isinstance(min_lr, (list, tuple))
        if several and len(min_lr) != count:  # type: ignore[arg-type]
            raise ValueError(f"expected {count} min_lrs, got {len(min_lr)}")  # type: ignore[arg-type]
        self.default_min_lr = None if several else min_lr
        self.min_lrs: list[Any] = list(min_lr) if several else [min_lr] * count  # type: ignore[arg-type]
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = rates_of(optimizer)
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = inf if mode == "min" else -inf
        self._reset()

    def _reset(self) -> None:
        """Forget what was best."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the last reduction is so recent that nothing counts as worse."""
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * a < sign * best * (1.0 - sign * self.threshold)
        return sign * a < sign * best - self.threshold

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at a metric.

        Parameters
        ----------
        metrics : float or Tensor of one element
        epoch : int, optional
        """
        refuse_again(self)
        current = float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = rates_of(self.optimizer)

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due "
                    "to a new param group being added to the optimizer. Please modify the "
                    "`min_lrs` field to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_rate(group, new)
