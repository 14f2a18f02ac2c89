"""Schedules made of schedules: one after another, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from lucid_gpu.optim.lr_scheduler.plateau import ReduceLROnPlateau
from lucid_gpu.optim.lr_scheduler.scheduler import (
    LRScheduler,
    rates_of,
    refuse_again,
    restores_on_error,
    set_rate,
)
from lucid_gpu.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Combined(LRScheduler):
    _schedulers: Sequence[LRScheduler]

    def _check(self, schedulers: Sequence[LRScheduler], optimizer: Any) -> None:
        name = type(self).__name__
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires "
                    "additional kwargs to be specified when calling `step`, but got one at index "
                    f"{i} in the given schedulers sequence."
                )
            if optimizer is not scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got "
                    f"scheduler {type(scheduler).__name__} at index {i} has {scheduler.optimizer}, "
                    f"which is different from {type(optimizer).__name__}."
                )

    def state_dict(self) -> dict[str, Any]:
        state = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        return {**state, "_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for one, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            one.load_state_dict(state)


class SequentialLR(_Combined):
    """One schedule until the first of ``milestones``, the next until the second, and so on.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : list of LRScheduler
    milestones : list of int
        One fewer.
    last_epoch : int

    Raises
    ------
    ValueError
        For no schedules, those of several optimizers, and a `ReduceLROnPlateau` among them; for
        another number of milestones.
    """

    @restores_on_error
    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler, but got no scheduler."
            )
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                "the number of milestone points, but got number of schedulers "
                f"{len(schedulers)} and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # each of them has made its first step
            set_rate(group, group["initial_lr"])
        _undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Set the next rates, by the schedule whose turn it is."""
        refuse_again(self)
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """Schedules that step together, each changing what the one before has set.

    Parameters
    ----------
    schedulers : sequence of LRScheduler
    optimizer : Optimizer, optional
        Theirs.

    Raises
    ------
    ValueError
        For no schedules, those of several optimizers, and a `ReduceLROnPlateau` among them.
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no "
                "scheduler."
            )
        optimizer = optimizer or schedulers[0].optimizer
        self._check(schedulers, optimizer)
        self._schedulers = schedulers
        self.optimizer = optimizer
        self._last_lr = rates_of(optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Let each schedule set its next rates."""
        refuse_again(self)
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = rates_of(self.optimizer)


def _undo(scheduler: LRScheduler) -> None:
    """Take a schedule's first step back, or those of the schedules it is made of."""
    if isinstance(scheduler, _Combined):
        for one in scheduler._schedulers:
            _undo(one)
    else:
        scheduler.last_epoch -= 1
