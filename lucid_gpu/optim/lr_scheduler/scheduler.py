"""The base of all schedules: when rates are computed, what is remembered."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from lucid_gpu.device import CPU
from lucid_gpu.devices import backend
from lucid_gpu.optim.optimizer import Group, Optimizer
from lucid_gpu.tensor import Tensor

__all__ = ["LRScheduler"]

Rate = float | Tensor
P = ParamSpec("P")

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available."
)
_SEE = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def restores_on_error(init: Callable[P, None]) -> Callable[P, None]:
    """A constructor that leaves the optimizer's groups as they were where it fails.

    For constructors that write groups; ``optimizer`` is the first argument after ``self``.
    """

    @functools.wraps(init)
    def restoring(*args: P.args, **kwargs: P.kwargs) -> None:
        optimizer = kwargs.get("optimizer", args[1] if len(args) > 1 else None)
        groups = optimizer.param_groups if isinstance(optimizer, Optimizer) else []
        before = [{key: (value, _copied(value)) for key, value in g.items()} for g in groups]
        try:
            init(*args, **kwargs)
        except BaseException:
            for group, settings in zip(groups, before, strict=True):
                group.clear()
                for key, (value, copy) in settings.items():
                    group[key] = value.fill_(copy) if isinstance(value, Tensor) else value
            raise

    return restoring


@contextlib.contextmanager
def _enable_get_lr_call(o: LRScheduler) -> Iterator[LRScheduler]:
    """While a scheduler's `step` asks for the next rates."""
    o._get_lr_called_within_step = True
    try:
        yield o
    finally:
        o._get_lr_called_within_step = False


def _warn_get_lr_called_within_step(lr_scheduler: LRScheduler) -> None:
    """Warn the caller of a `get_lr`, which calls this, unless it is a scheduler's `step`."""
    if not lr_scheduler._get_lr_called_within_step:
        warnings.warn(
            "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
            UserWarning,
            stacklevel=3,
        )


class LRScheduler:
    """Sets the learning rate of each group, once when made and then with each `step`.

    A subclass defines `get_lr`.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int
        How many steps were made before; -1 to begin.

    Attributes
    ----------
    base_lrs : list of float
        The rates at the beginning, by group.
    last_epoch : int

    Raises
    ------
    TypeError
        For anything but an optimizer.
    KeyError
        With a ``last_epoch`` and no ``initial_lr`` in the optimizer's groups.
    """

    _is_initial = False
    _get_lr_called_within_step = False
    _last_lr: list[Rate]

    @restores_on_error
    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked_optimizer(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0.\n"
                    "This typically happens when:\n"
                    "1. You're trying to resume training from a checkpoint but haven't properly "
                    "loaded the optimizer state\n"
                    "2. You're using last_epoch >= 0 for a fresh training run (not recommended)"
                )
        self.base_lrs = rates_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        if optimizer._opt_called is None:
            optimizer._opt_called = False
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    # -- what subclasses say ----------------------------------------------------------------

    def get_lr(self) -> list[Rate]:
        """The next rates, by group. `step` asks for them; people ask `get_last_lr`.

        NotImplementedError in a subclass that does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_lr()")

    # -- stepping ---------------------------------------------------------------------------

    def get_last_lr(self) -> list[Rate]:
        """The rates that were set last, by group."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Set the next rates; called after ``optimizer.step()``."""
        refuse_again(self)
        if self._step_count == 1:
            self._warn_of_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        if not getattr(self.optimizer.step, "hooked", False):
            text = (
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, make sure to call `optimizer.step()` before "
                f"`lr_scheduler.step()`. {_SEE}"
            )
        elif not self.optimizer._opt_called:
            text = (
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch "
                "1.1.0 and later, you should call them in the opposite order: `optimizer.step()` "
                "before `lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping "
                f"the first value of the learning rate schedule. {_SEE}"
            )
        else:
            return
        warnings.warn(text, UserWarning, stacklevel=3)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        self._set_lrs(self.get_lr if epoch is None or closed is None else closed)

    def _set_lrs(self, get_lr: Any) -> None:
        with _enable_get_lr_call(self):
            values = get_lr()
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, lr)
        self._last_lr = rates_of(self.optimizer)

    # -- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the attributes of a `state_dict`."""
        self.__dict__.update(state_dict)


def checked_optimizer(optimizer: Any) -> Optimizer:
    """The optimizer, or a TypeError."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


def rates_of(optimizer: Optimizer, key: str = "lr") -> list[Rate]:
    """The groups' rates; tensors are copied."""
    return [_copied(group[key]) for group in optimizer.param_groups]


def refuse_again(scheduler: Any) -> None:
    """Refuse a schedule's step in what is noted to be made again: it would be made once."""
    backend(CPU).once(
        f"{type(scheduler).__name__}.step()",
        "replays read the rates of the optimizer's groups, which it sets from Python",
    )


def set_rate(group: Group, lr: Rate) -> None:
    """Set a group's rate, in place where it is a tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(float(lr))
    else:
        group["lr"] = lr


def by_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """A setting for each group: one for all, or a list."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [_copied(value) for _ in range(count)]
    if len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(value)} values, param_groups has {count}."
        )
    return [_copied(v) for v in value]


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
