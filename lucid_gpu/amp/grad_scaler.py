"""Losses scaled up so that gradients of float16 do not vanish."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from lucid_gpu.device import CPU
from lucid_gpu.device import device as Device
from lucid_gpu.devices import backend
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.dtypes import float16, float32, int32
from lucid_gpu.kernels.multi_tensor import unscale
from lucid_gpu.ops.creation import full
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.foreach import write_together
from lucid_gpu.tape import watched
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """What was done with an optimizer since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Optimizer:
    """What is known of one optimizer since the last `update`."""

    def __init__(self) -> None:
        self.stage = OptState.READY
        self.found_inf: list[Tensor] = []


class _Unless:
    """Arrays: where one is not zero, a step that is made again is left out, if ``read``."""

    def __init__(self, flags: list[Any]) -> None:
        self.flags, self.read = flags, False


class GradScaler:
    """Multiplies losses by a scale, divides gradients by it, and skips steps that overflowed.

    The scale grows by ``growth_factor`` after ``growth_interval`` steps without infinities and NaN,
    and falls by ``backoff_factor`` at once with one. Gradients are divided and looked at by one
    kernel a type, whatever their number (Micikevicius et al., Mixed precision training, 2018).

    Parameters
    ----------
    device : {"cuda", "cpu"}
    init_scale, growth_factor, backoff_factor : float
    growth_interval : int
    enabled : bool
        Otherwise nothing is scaled, and `step` is the optimizer's.

    Raises
    ------
    AssertionError
        If ``growth_factor`` is not above 1 or ``backoff_factor`` not below it.

    Examples
    --------
    >>> import lucid_gpu
    >>> weight = lucid_gpu.ones(2, requires_grad=True)
    >>> optimizer = lucid_gpu.optim.SGD([weight], lr=0.5)
    >>> scaler = lucid_gpu.amp.GradScaler("cpu")
    >>> scaler.scale(weight.sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight.tolist()
    [0.5, 0.5]
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda" and problem() is not None:
            warnings.warn(
                "lucid_gpu.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if self._enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._init_growth_tracker = 0
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._scale: Tensor | None = None  # made where the first loss is
        self._growth_tracker: Tensor | None = None
        self._optimizers: defaultdict[int, _Optimizer] = defaultdict(_Optimizer)

    # -- a step -----------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """Losses, of any shape, times the scale.

        Parameters
        ----------
        outputs : Tensor or iterable of Tensor

        Raises
        ------
        ValueError
            For anything but a tensor or an iterable of tensors.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                backend(CPU).keep(self)
                with watched.aside():  # else each replay would begin with it
                    self._scale = full((), self._init_scale, dtype=float32, device=outputs.device)
                    tracker = self._init_growth_tracker
                    self._growth_tracker = full((), tracker, dtype=int32, device=outputs.device)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, Iterable):
            scaled = [self.scale(one) for one in outputs]
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else iter(scaled)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide an optimizer's gradients by the scale now, for instance to clip them.

        Raises
        ------
        RuntimeError
            If that was done already, or the step.
        ValueError
            For gradients of float16.
        """
        if not self._enabled:
            return
        scale, _ = self._ready("unscale_")
        one = self._known(optimizer)
        if one.stage is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if one.stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        with no_grad():
            flags = self._divided(optimizer, scale.double().reciprocal().float())
        self._note(optimizer, OptState.UNSCALED, flags)

    def _divided(self, optimizer: Any, inverse: Tensor) -> list[Tensor]:
        """Multiply the gradients by a number; gives whether some are infinite."""
        gradients = [*_gradients(optimizer)]
        return _on_all_ranks([*_unscaled(gradients, inverse)], gradients)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Let the optimizer step, unless a gradient is infinite or NaN.

        Returns
        -------
        What ``optimizer.step(*args, **kwargs)`` returned, or None.

        Raises
        ------
        RuntimeError
            For a ``closure``, and for a second call before `update`.
        AssertionError
            If the optimizer has no gradients.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._ready("step")
        one = self._known(optimizer)
        if one.stage is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_by_itself(one, optimizer, args, kwargs)
        if one.stage is OptState.READY:
            self.unscale_(optimizer)
        if not one.found_inf:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None
        there = backend(CPU)
        if there.records:  # the flags are looked at each time, and not now
            there.keep(optimizer)
            unless = optimizer._unless = _Unless([flag.array for flag in one.found_inf])
            try:
                result = optimizer.step(*args, **kwargs)
            finally:
                del optimizer._unless
            if not unless.read:
                there.once(
                    f"GradScaler.step() of {type(optimizer).__name__}",
                    "its own step() cannot be left out where a gradient is infinite",
                )
        elif not sum([flag.item() for flag in one.found_inf]):
            result = optimizer.step(*args, **kwargs)
        self._note(optimizer, OptState.STEPPED, one.found_inf)
        return result

    def _step_by_itself(self, one: _Optimizer, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """The step of an optimizer that divides by the scale, and skips steps, itself."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed "
                "optimizer. In the near future GradScaler registers `grad_scale: Tensor` and "
                "`found_inf: Tensor` to the passed optimizer and let the optimizer use them "
                "directly.",
                FutureWarning,
                stacklevel=3,
            )
            result = optimizer.step(*args, **kwargs, grad_scaler=self)
        else:
            scale, _ = self._ready("step")
            own = getattr(optimizer, "grad_scale", None)
            if one.stage is OptState.READY:
                with no_grad():
                    one.found_inf = self._divided(optimizer, full((), 1.0, device=scale.device))
                own = scale * (1 if own is None else own)
            optimizer.grad_scale = own
            optimizer.found_inf = sum([flag.to(scale.device) for flag in one.found_inf])
            result = optimizer.step(*args, **kwargs)
            del optimizer.grad_scale, optimizer.found_inf
        self._note(optimizer, OptState.STEPPED, one.found_inf)
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Set the scale of the next step.

        Parameters
        ----------
        new_scale : float or Tensor of one element, optional
            Instead of the scale that growth and backoff give.

        Raises
        ------
        AssertionError
            For a tensor of several elements, or one that requires grad.
        """
        if not self._enabled:
            return
        scale, tracker = self._ready("update")
        backend(CPU).keep(self, repeated=True)
        with no_grad():
            if new_scale is None:
                self._grow_or_fall(scale, tracker)
            elif isinstance(new_scale, Tensor):
                if new_scale.numel() != 1 or new_scale.requires_grad:
                    raise AssertionError(
                        "new_scale should be a float or a 1-element tensor with "
                        "requires_grad=False."
                    )
                scale.copy_(new_scale.reshape(()))
            else:
                scale.fill_(new_scale)
        backend(CPU).repeat("GradScaler.update", self._optimizers.clear)

    def _grow_or_fall(self, scale: Tensor, tracker: Tensor) -> None:
        some = [t.to(scale.device) for one in self._optimizers.values() for t in one.found_inf]
        if not some:
            raise AssertionError("No inf checks were recorded prior to update.")
        overflowed = sum(some[1:], some[0]) > 0
        grown = scale * self._growth_factor
        full_interval = tracker + 1 == self._growth_interval
        larger = where(full_interval.logical_and(grown.isfinite()), grown, scale)
        scale.copy_(where(overflowed, scale * self._backoff_factor, larger))
        tracker.copy_((tracker + 1).masked_fill(overflowed.logical_or(full_interval), 0))

    def _known(self, optimizer: Any) -> _Optimizer:
        """What is known of an optimizer, to be changed."""
        there = backend(CPU)
        there.keep(self, repeated=True)
        one = self._optimizers[id(optimizer)]
        there.keep(one, repeated=True)
        return one

    def _note(self, optimizer: Any, stage: OptState, flags: list[Tensor]) -> None:
        """Note what was done with an optimizer, and what was found."""
        name = f"GradScaler {stage.name.lower()}"
        backend(CPU).repeat(name, self._put, id(optimizer), stage, flags)

    def _put(self, optimizer: int, stage: OptState, flags: list[Tensor]) -> None:
        one = self._optimizers[optimizer]
        one.stage, one.found_inf = stage, flags

    def _ready(self, name: str) -> tuple[Tensor, Tensor]:
        if self._scale is None or self._growth_tracker is None:
            raise AssertionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale, self._growth_tracker

    # -- settings ---------------------------------------------------------------------------

    def is_enabled(self) -> bool:
        """Whether anything is scaled."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; 1 when disabled. On a GPU this waits for it."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Say by what the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the scale falls."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Say by what the scale falls."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Say after how many steps the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else int(tracker.item())

    def state_dict(self) -> dict[str, Any]:
        """The scale and how it changes; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a `state_dict`; does nothing when disabled.

        Raises
        ------
        RuntimeError
            If it is empty.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None and self._growth_tracker is not None:  # a graph may read them
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._optimizers:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                "the end after scaler.update()."
            )
        now = {"_init_scale": self.get_scale(), "_init_growth_tracker": self._get_growth_tracker()}
        return {**self.__dict__, **now, "_scale": None, "_growth_tracker": None}


def _gradients(optimizer: Any) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                if p.grad.dtype is float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                yield p.grad.values() if p.grad._is_sparse else p.grad


def _on_all_ranks(flags: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    """What was found in gradients of which ranks have rows each: the same on all."""
    groups = dict.fromkeys(g.sharding.group for g in gradients if hasattr(g, "sharding"))
    if groups:
        from lucid_gpu.distributed.tensor import largest_of_ranks

        flags = [sum(flags[1:], flags[0])]
        for group in groups:
            largest_of_ranks(flags[0], group)
    return flags


def _unscaled(gradients: Iterable[Tensor], inverse: Tensor) -> Iterator[Tensor]:
    """Multiply gradients in place; for each device, whether one of them was not finite."""
    groups: dict[Device, list[Tensor]] = {}
    for g in gradients:
        groups.setdefault(g.device, []).append(g)
    for where_, some in groups.items():
        flag = full((), 0.0, dtype=float32, device=where_)
        scale = functools.partial(_unscale, inverse.to(where_).array, flag.array, where_)
        write_together(some, "unscale_", where_, scale)
        yield flag


def _unscale(factor: Any, flag: Any, where_: Device, arrays: list[Any]) -> None:
    unscale(arrays, factor, flag, where_)
