"""Loss modules: settings around `functional`."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "L1Loss", "MSELoss", "NLLLoss"]


class _Loss(Module):
    """``function(input, target, **settings)``, where tensors among the settings are buffers."""

    def __init__(self, size_average: Any, reduce: Any, reduction: str, **settings: Any) -> None:
        super().__init__()
        settings["reduction"] = F.reduction_of(size_average, reduce, reduction)
        self._settings = tuple(settings)
        for name, value in settings.items():
            if name.endswith("weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def _call(self, function: Any, input: Tensor, target: Tensor) -> Tensor:
        settings = {name: getattr(self, name) for name in self._settings}
        result: Tensor = function(input, target, **settings)
        return result


class MSELoss(_Loss):
    r"""Mean squared error: ``(input - target)^2``.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}
    """

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._call(F.mse_loss, input, target)


class L1Loss(_Loss):
    r"""Mean absolute error: ``abs(input - target)``.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}
    """

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._call(F.l1_loss, input, target)


class NLLLoss(_Loss):
    r"""``-weight[target] * input[n, target]`` of log-probabilities.

    Parameters
    ----------
    weight : Tensor, shape (c,), optional
    ignore_index : int
    reduction : {"mean", "sum", "none"}
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, weight=weight, ignore_index=ignore_index)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._call(F.nll_loss, input, target)


class CrossEntropyLoss(_Loss):
    r"""``log(sum_c exp(input[n, c])) - input[n, target]`` of unnormalised scores.

    Parameters
    ----------
    weight : Tensor, shape (c,), optional
    ignore_index : int
    reduction : {"mean", "sum", "none"}
    label_smoothing : float
        How much of each target is spread over all classes.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            size_average,
            reduce,
            reduction,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._call(F.cross_entropy, input, target)


class BCEWithLogitsLoss(_Loss):
    r"""Binary cross entropy of ``sigmoid(input)``, computed without overflow.

    Parameters
    ----------
    weight : Tensor, optional
    reduction : {"mean", "sum", "none"}
    pos_weight : Tensor, optional
        Weight of the positive part.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction, weight=weight, pos_weight=pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._call(F.binary_cross_entropy_with_logits, input, target)
