"""Loss modules: one table of functions and their settings."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.distance import PairwiseDistance
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _Loss(Module):
    """``function(*inputs, **settings)``: what every row of the table becomes.

    Tensors among the settings are buffers.
    """

    function: Callable[..., Tensor]
    signature: inspect.Signature

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        bound.apply_defaults()
        settings = dict(bound.arguments)
        old = settings.pop("size_average", None), settings.pop("reduce", None)
        settings["reduction"] = F.reduction_of(*old, settings["reduction"])
        self._check(settings)
        self._settings = tuple(settings)
        for name, value in settings.items():
            if name.endswith("weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def _check(self, settings: dict[str, Any]) -> None:
        """Refuse settings that cannot be."""

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        settings = {name: getattr(self, name) for name in self._settings}
        return type(self).function(*inputs, **named, **settings)


_OLD: dict[str, Any] = {"size_average": None, "reduce": None, "reduction": "mean"}


def _row(
    name: str, function: Callable[..., Tensor], _only_named: bool = False, **settings: Any
) -> Any:
    """A module class of one function; ``settings`` are its arguments and their defaults."""
    kind = (
        inspect.Parameter.KEYWORD_ONLY if _only_named else inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
    signature = inspect.Signature(
        [inspect.Parameter(key, kind, default=default) for key, default in settings.items()]
    )
    body = {
        "function": staticmethod(function),
        "signature": signature,
        "__signature__": signature,
        "__doc__": function.__doc__,
        "__module__": __name__,
    }
    return type(name, (_Loss,), body)


# fmt: off
MSELoss      = _row("MSELoss", F.mse_loss, **_OLD)
L1Loss       = _row("L1Loss", F.l1_loss, **_OLD)
SmoothL1Loss = _row("SmoothL1Loss", F.smooth_l1_loss, **_OLD, beta=1.0)
HuberLoss    = _row("HuberLoss", F.huber_loss, reduction="mean", delta=1.0)
KLDivLoss    = _row("KLDivLoss", F.kl_div, **_OLD, log_target=False)
BCELoss      = _row("BCELoss", F.binary_cross_entropy, weight=None, **_OLD)
CTCLoss      = _row("CTCLoss", F.ctc_loss, blank=0, reduction="mean", zero_infinity=False)
BCEWithLogitsLoss = _row(
    "BCEWithLogitsLoss", F.binary_cross_entropy_with_logits, weight=None, **_OLD, pos_weight=None
)
NLLLoss = _row(
    "NLLLoss", F.nll_loss,
    weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
)
CrossEntropyLoss = _row(
    "CrossEntropyLoss", F.cross_entropy,
    weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
    label_smoothing=0.0,
)
PoissonNLLLoss = _row(
    "PoissonNLLLoss", F.poisson_nll_loss,
    log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean",
)
GaussianNLLLoss = _row(
    "GaussianNLLLoss", F.gaussian_nll_loss, True, full=False, eps=1e-6, reduction="mean"
)
HingeEmbeddingLoss  = _row("HingeEmbeddingLoss", F.hinge_embedding_loss, margin=1.0, **_OLD)
MarginRankingLoss   = _row("MarginRankingLoss", F.margin_ranking_loss, margin=0.0, **_OLD)
CosineEmbeddingLoss = _row("CosineEmbeddingLoss", F.cosine_embedding_loss, margin=0.0, **_OLD)
SoftMarginLoss      = _row("SoftMarginLoss", F.soft_margin_loss, **_OLD)
MultiLabelMarginLoss = _row("MultiLabelMarginLoss", F.multilabel_margin_loss, **_OLD)
MultiLabelSoftMarginLoss = _row(
    "MultiLabelSoftMarginLoss", F.multilabel_soft_margin_loss, weight=None, **_OLD
)
MultiMarginLoss = _row(
    "MultiMarginLoss", F.multi_margin_loss, p=1, margin=1.0, weight=None, **_OLD
)
TripletMarginLoss = _row(
    "TripletMarginLoss", F.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False, **_OLD
)
TripletMarginWithDistanceLoss = _row(
    "TripletMarginWithDistanceLoss", F.triplet_margin_with_distance_loss, True,
    distance_function=None, margin=1.0, swap=False, reduction="mean",
)
# fmt: on


def _of_multi_margin(self: _Loss, settings: dict[str, Any]) -> None:
    if settings["p"] not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    weight = settings["weight"]
    if weight is not None and weight.ndim != 1:
        raise ValueError(
            f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.ndim}D instead"
        )


def _of_triplet(self: _Loss, settings: dict[str, Any]) -> None:
    if settings["margin"] <= 0:
        raise ValueError(
            f"{type(self).__name__}: expected margin to be greater than 0, got "
            f"{settings['margin']} instead"
        )
    if settings.get("distance_function", 0) is None:
        settings["distance_function"] = PairwiseDistance()


MultiMarginLoss._check = _of_multi_margin
TripletMarginLoss._check = TripletMarginWithDistanceLoss._check = _of_triplet


class NLLLoss2d(NLLLoss):  # type: ignore[misc, valid-type]
    """`NLLLoss` under its older name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in "
            "replacement and see https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more "
            "details.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)
