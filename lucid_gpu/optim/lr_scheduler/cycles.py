"""Schedules that go up and down, momentum against them."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from lucid_gpu.optim.lr_scheduler.scheduler import (
    LRScheduler,
    Rate,
    _warn_get_lr_called_within_step,
    by_group,
    checked_optimizer,
    refuse_again,
    restores_on_error,
    set_rate,
)
from lucid_gpu.optim.optimizer import Group, Optimizer

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


class _WithMomentum(LRScheduler):
    cycle_momentum: bool
    use_beta1: bool

    def _begin_momentum(self, base: list[float], most: list[float], last_epoch: int) -> None:
        if last_epoch != -1:
            return
        for group, low, high in zip(self.optimizer.param_groups, base, most, strict=True):
            self._set_momentum(group, high)
            group["max_momentum"], group["base_momentum"] = high, low

    def _check_momentum(self) -> None:
        settings = self.optimizer.defaults
        if "momentum" not in settings and "betas" not in settings:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in settings

    def _set_momentum(self, group: Group, momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


SCALES: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "triangular": ("cycle", lambda gamma, x: 1.0),
    "triangular2": ("cycle", lambda gamma, x: 1 / (2.0 ** (x - 1))),
    "exp_range": ("iterations", lambda gamma, x: gamma**x),
}


class CyclicLR(_WithMomentum):
    """Up from ``base_lr`` to ``max_lr`` and down again, cycle by cycle.

    Smith, Cyclical learning rates for training neural networks, 2017.

    Parameters
    ----------
    optimizer : Optimizer
    base_lr, max_lr : float or list of float
    step_size_up, step_size_down : int
        Steps of each half; both as long by default.
    mode : {"triangular", "triangular2", "exp_range"}
        The height of a cycle: constant, halved with each cycle, or ``gamma^t``.
    gamma : float
    scale_fn : callable, optional
        The height as a function of the cycle or of the step, instead of ``mode``.
    scale_mode : {"cycle", "iterations"}
    cycle_momentum : bool
        Move momentum, or the first beta, between ``max_momentum`` and ``base_momentum`` against
        the rate.
    base_momentum, max_momentum : float or list of float
    last_epoch : int

    Raises
    ------
    ValueError
        For another mode, a list of another length, and an optimizer without momentum to cycle.
    """

    @restores_on_error
    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = checked_optimizer(optimizer)
        base_lrs = by_group("base_lr", optimizer, base_lr)
        self.max_lrs = by_group("max_lr", optimizer, max_lr)
        if mode not in SCALES and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_rate(group, lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else SCALES[mode][0]
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._check_momentum()
            self.base_momentums = by_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = by_group("max_momentum", optimizer, max_momentum)
            self._begin_momentum(self.base_momentums, self.max_momentums, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height of a cycle."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return SCALES[self.mode][1](self.gamma, x)

    def get_lr(self) -> list[Rate]:
        _warn_get_lr_called_within_step(self)
        t = self.last_epoch
        cycle = math.floor(1 + t / self.total_size)
        x = 1.0 + t / self.total_size - cycle
        rising = x <= self.step_ratio
        height = x / self.step_ratio if rising else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else t)
        if self.cycle_momentum:
            both = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, both, strict=True):
                self._set_momentum(group, high - (high - low) * height)
        pairs = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * height for low, high in pairs]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        function = self._scale_fn_custom
        plain = function is None or isinstance(function, types.FunctionType)
        state["_scale_fn_custom"] = None if plain else function.__dict__.copy()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if state_dict["_scale_fn_custom"] is not None:
            self._scale_fn_custom.__dict__.update(state_dict["_scale_fn_custom"])


class OneCycleLR(_WithMomentum):
    """Up to ``max_lr`` and down far below where it began, in one cycle.

    Smith and Topin, Super-convergence: very fast training using large learning rates, 2018.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float or list of float
    total_steps : int, optional
        Or ``epochs`` times ``steps_per_epoch``.
    epochs, steps_per_epoch : int, optional
    pct_start : float
        Which part of the cycle goes up.
    anneal_strategy : {"cos", "linear"}
    cycle_momentum : bool
        Move momentum, or the first beta, against the rate.
    base_momentum, max_momentum : float or list of float
    div_factor, final_div_factor : float
        The first rate is ``max_lr / div_factor``, the last one that over ``final_div_factor``.
    three_phase : bool
        Go down as symmetrically as up before going below the first rate.
    last_epoch : int

    Raises
    ------
    ValueError
        For no number of steps, invalid settings, and an optimizer without momentum to cycle.
    """

    @restores_on_error
    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = checked_optimizer(optimizer)
        self.total_steps = _steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        max_lrs = by_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"] = most / div_factor
                group["max_lr"] = most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._check_momentum()
            base = by_group("base_momentum", optimizer, base_momentum)
            most_momentum = by_group("max_momentum", optimizer, max_momentum)
            self._begin_momentum(base, most_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """The next rates, by group; ValueError after ``total_steps`` of them."""
        _warn_get_lr_called_within_step(self)
        t = self.last_epoch
        if t > self.total_steps:
            raise ValueError(
                f"Tried to step {t} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start = 0.0
        for phase in self._schedule_phases:
            if t <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        part = (t - start) / (phase["end_step"] - start)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                self._set_momentum(group, self._between(group, phase, "momentum", part))
        return [self._between(group, phase, "lr", part) for group in self.optimizer.param_groups]

    def _between(self, group: Group, phase: dict[str, Any], what: str, part: float) -> Any:
        start, end = group[phase[f"start_{what}"]], group[phase[f"end_{what}"]]
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start


def _steps(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    factors = {"total_steps": total_steps}
    if total_steps is None:
        factors = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    for name, value in factors.items():
        if value <= 0 or not isinstance(value, int):
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(factors.values())


def _phases(total: int, part: float, three: bool) -> list[dict[str, Any]]:
    """Ends of the phases, and between which of a group's values each of them goes."""
    up = (float(part * total) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    down = (float(2 * part * total) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum")
    below = (total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")
    rest = (total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")
    names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    return [
        dict(zip(names, row, strict=True)) for row in ((up, down, below) if three else (up, rest))
    ]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that restarts after ``T_0`` steps, each period ``T_mult`` times as long.

    ``lr = eta_min + (base - eta_min) (1 + cos(pi T_cur / T_i)) / 2``: Loshchilov and Hutter, SGDR,
    2017.

    Parameters
    ----------
    optimizer : Optimizer
    T_0, T_mult : int
    eta_min : float
    last_epoch : int

    Raises
    ------
    ValueError
        For periods that are not positive whole numbers, and an ``eta_min`` that is not a number.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        _warn_get_lr_called_within_step(self)
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Set the next rates, or those of any ``epoch``, which may be a fraction.

        ValueError for a negative one.
        """
        refuse_again(self)
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._set_lrs(self.get_lr)

    def _go_to(self, epoch: float) -> None:
        first, times = self.T_0, self.T_mult
        if epoch < first:
            self.T_i, self.T_cur = first, epoch
        elif times == 1:
            self.T_cur = epoch % first
        else:
            n = int(math.log(epoch / first * (times - 1) + 1, times))
            self.T_cur = epoch - first * (times**n - 1) / (times - 1)
            self.T_i = first * times**n
