"""Schedules by users' functions of the step."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from lucid_gpu.optim.lr_scheduler.scheduler import (
    LRScheduler,
    Rate,
    _warn_get_lr_called_within_step,
    rates_of,
)
from lucid_gpu.optim.optimizer import Optimizer

__all__ = ["LambdaLR", "MultiplicativeLR"]

Function = Callable[[int], float]


class LambdaLR(LRScheduler):
    """``lr = base * lr_lambda(t)``.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable or list of callables
        One for all groups, or one for each. Of objects that are not functions, a state dict has the
        attributes; of functions, nothing.
    last_epoch : int

    Raises
    ------
    TypeError, ValueError
        For functions that are not callable, and another number of functions than of groups.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Function | list[Function],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        several = isinstance(lr_lambda, (list, tuple))
        if several and len(lr_lambda) != count:  # type: ignore[arg-type]
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(lr_lambda)}")  # type: ignore[arg-type]
        for function in lr_lambda if several else (lr_lambda,):  # type: ignore[union-attr]
            if not callable(function):
                raise TypeError(
                    f"lr_lambda should be a function, but got {type(function).__name__}"
                )
        self.lr_lambdas: list[Any] = list(lr_lambda) if several else [lr_lambda] * count  # type: ignore[arg-type]
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        _warn_get_lr_called_within_step(self)
        both = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * function(self.last_epoch) for base, function in both]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else f.__dict__.copy()
            for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)


class MultiplicativeLR(LambdaLR):
    """``lr`` times ``lr_lambda(t)`` at each step after the first.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable or list of callables
        See `LambdaLR`; raises the same TypeError and ValueError.
    last_epoch : int
    """

    def get_lr(self) -> list[Rate]:
        _warn_get_lr_called_within_step(self)
        rates = rates_of(self.optimizer)
        if self._is_initial:
            return rates
        return [lr * f(self.last_epoch) for lr, f in zip(rates, self.lr_lambdas, strict=True)]
