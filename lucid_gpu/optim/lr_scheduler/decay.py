"""Schedules by one factor for all groups, as a closed form and from step to step."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from math import cos, pi

from lucid_gpu.optim.lr_scheduler.scheduler import (
    LRScheduler,
    Rate,
    _warn_get_lr_called_within_step,
    rates_of,
)
from lucid_gpu.optim.optimizer import Optimizer

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LinearLR",
    "MultiStepLR",
    "PolynomialLR",
    "StepLR",
]


class _ByFactor(LRScheduler):
    """The rate is the base rate times `_closed`, the last rate times `_factor`."""

    def _factor(self) -> float | None:
        """By what the last rate is multiplied; None leaves it."""
        raise NotImplementedError

    def _closed(self) -> float:
        """By what the base rate is multiplied."""
        raise NotImplementedError

    def get_lr(self) -> list[Rate]:
        _warn_get_lr_called_within_step(self)
        factor = self._factor()
        rates = rates_of(self.optimizer)
        return rates if factor is None else [lr * factor for lr in rates]

    def _get_closed_form_lr(self) -> list[Rate]:
        factor = self._closed()
        return [lr * factor for lr in self.base_lrs]


class StepLR(_ByFactor):
    """``gamma`` times less every ``step_size`` steps: ``lr = base * gamma^floor(t / step_size)``.

    Parameters
    ----------
    optimizer : Optimizer
    step_size : int
    gamma : float
    last_epoch : int
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return self.gamma if self.last_epoch and not self.last_epoch % self.step_size else None

    def _closed(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_ByFactor):
    """``gamma`` times less at each of ``milestones``.

    Parameters
    ----------
    optimizer : Optimizer
    milestones : iterable of int
        One that stands there twice counts twice.
    gamma : float
    last_epoch : int
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        times = self.milestones.get(self.last_epoch, 0)
        return self.gamma**times if times else None

    def _closed(self) -> float:
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(_ByFactor):
    """``factor`` times the base rate for ``total_iters`` steps, then the base rate.

    Parameters
    ----------
    optimizer : Optimizer
    factor : float
        Between 0 and 1, else ValueError.
    total_iters, last_epoch : int
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else None

    def _closed(self) -> float:
        return 1.0 if self.last_epoch >= self.total_iters else self.factor


class LinearLR(_ByFactor):
    """From ``start_factor`` to ``end_factor`` times the base rate in ``total_iters`` equal steps.

    Parameters
    ----------
    optimizer : Optimizer
    start_factor, end_factor : float
        Up to 1, the first above 0 and the other not below, else ValueError.
    total_iters, last_epoch : int
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        t, way = self.last_epoch, self.end_factor - self.start_factor
        if t == 0:
            return self.start_factor
        if self._is_initial or t > self.total_iters:
            return None
        return 1.0 + way / (self.total_iters * self.start_factor + (t - 1) * way)

    def _closed(self) -> float:
        way = self.end_factor - self.start_factor
        return self.start_factor + way * min(self.total_iters, self.last_epoch) / self.total_iters


class ExponentialLR(_ByFactor):
    """``lr = base * gamma^t``.

    Parameters
    ----------
    optimizer : Optimizer
    gamma : float
    last_epoch : int
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _closed(self) -> float:
        return self.gamma**self.last_epoch


class PolynomialLR(_ByFactor):
    """``lr = base * (1 - t / total_iters)^power``, and then 0.

    Parameters
    ----------
    optimizer : Optimizer
    total_iters : int
    power : float
    last_epoch : int
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        t, n = self.last_epoch, self.total_iters
        if self._is_initial or t > n:
            return None
        return float(((1.0 - t / n) / (1.0 - (t - 1) / n)) ** self.power)

    def _closed(self) -> float:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return float(left**self.power)


class CosineAnnealingLR(LRScheduler):
    """``lr = eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2``.

    Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, 2017; without the
    restarts.

    Parameters
    ----------
    optimizer : Optimizer
    T_max : int
        Half a period.
    eta_min : float
        The least rate.
    last_epoch : int
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        _warn_get_lr_called_within_step(self)
        t, period, least = self.last_epoch, self.T_max, self.eta_min
        rates = rates_of(self.optimizer)
        if self._is_initial:
            return rates
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        if (t - 1 - period) % (2 * period) == 0:  # the last rate was the least: no quotient
            up = (1 - cos(pi / period)) / 2
            return [lr + (base - least) * up for lr, base in zip(rates, self.base_lrs, strict=True)]
        factor = (1 + cos(pi * t / period)) / (1 + cos(pi * (t - 1) / period))
        return [factor * (lr - least) + least for lr in rates]

    def _get_closed_form_lr(self) -> list[Rate]:
        height = (1 + cos(pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]
