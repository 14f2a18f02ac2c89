"""Averages of models: of equal weight or exponential, and the schedule that goes with them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.dtypes import int64
from lucid_gpu.nn.modules.batchnorm import _BatchNorm
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.foreach import update_in_place
from lucid_gpu.optim.lr_scheduler.scheduler import (
    LRScheduler,
    Rate,
    _warn_get_lr_called_within_step,
    by_group,
    restores_on_error,
)
from lucid_gpu.optim.optimizer import Optimizer
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[list[Tensor], list[Tensor], Any], None]


def get_swa_avg_fn() -> Average:
    """``averaged + (current - averaged) / (n + 1)``, elementwise: of ``n`` models and one more."""
    return lambda averaged, current, n: averaged + (current - averaged) / (n + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """``decay * averaged + (1 - decay) * current``, elementwise; ValueError outside ``[0, 1]``."""
    _check_decay(decay)
    return lambda averaged, current, n: decay * averaged + (1 - decay) * current


def get_swa_multi_avg_fn() -> Averages:
    """`get_swa_avg_fn` for all parameters in place, by one kernel a type."""
    return lambda averaged, current, n: _move(averaged, current, 1 / (float(n) + 1))


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """`get_ema_avg_fn` for all parameters in place, with one kernel for each type."""
    _check_decay(decay)
    return lambda averaged, current, n: _move(averaged, current, 1 - decay)


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def _move(averaged: list[Tensor], current: list[Tensor], weight: float) -> None:
    pairs = list(zip(averaged, current, strict=True))
    rows = [pair for pair in pairs if pair[0].dtype.is_floating_point]
    update_in_place(_moved, rows, 1, {"weight": weight})
    for a, c in pairs:
        if not a.dtype.is_floating_point:
            a.copy_(a + (c - a) * weight)


def _moved(a: Tensor, c: Tensor, *, weight: Tensor) -> tuple[Tensor, ...]:
    return (a + (c - a) * weight,)


class AveragedModel(Module):
    """A copy of a model whose parameters are averages over training.

    Izmailov et al., Averaging weights leads to wider optima and better generalization, 2018.

    Parameters
    ----------
    model : Module
    device : device, optional
        Where the averages are kept.
    avg_fn : callable, optional
        ``avg_fn(averaged, current, n)``, the new average of one parameter.
    multi_avg_fn : callable, optional
        ``multi_avg_fn(averaged, current, n)`` for lists, in place. Without either, models have
        equal weight.
    use_buffers : bool
        Average buffers too, instead of copying them.

    Raises
    ------
    AssertionError
        For both functions.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take a model's parameters into the average; the first one is copied."""
        own, theirs = (
            [*m.parameters(), *(m.buffers() if self.use_buffers else ())]
            for m in (self.module, model)
        )
        with no_grad():
            current = [q.detach().to(p.device) for p, q in zip(own, theirs, strict=True)]
            n = int(self.n_averaged.item())
            if n == 0:
                for p, q in zip(own, current, strict=True):
                    p.copy_(q)
            elif self.avg_fn is not None:
                for p, q in zip(own, current, strict=True):
                    p.copy_(self.avg_fn(p.detach(), q, n))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(own, current, n)
            if not self.use_buffers:
                for a, b in zip(self.module.buffers(), model.buffers(), strict=True):
                    a.copy_(b.detach().to(a.device))
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of batch norm in one pass over the data.

    Parameters
    ----------
    loader : iterable of Tensor, or of lists whose first element is one
        Batches, of a shape that the model takes.
    model : Module
    device : device, optional
        Where batches are put.
    """
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None
    with no_grad():
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the rate there is to ``swa_lr`` in ``anneal_epochs`` steps, and then constant.

    Parameters
    ----------
    optimizer : Optimizer
    swa_lr : float or list of float
    anneal_epochs : int
        Not negative, else ValueError.
    anneal_strategy : {"cos", "linear"}
        ValueError for another.
    last_epoch : int
    """

    @restores_on_error
    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = by_group("swa_lr", optimizer, swa_lr)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way is behind after so many steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Rate]:
        _warn_get_lr_called_within_step(self)
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates: list[Rate] = []
        for group in self.optimizer.param_groups:
            lr, end = group["lr"], group["swa_lr"]
            start = end if before == 1 else (lr - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
