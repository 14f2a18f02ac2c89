"""Loss modules: one table of functions and their settings."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from lucid_gpu.compat.module_names import beside
from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.distance import PairwiseDistance
from lucid_gpu.nn.modules.rows import Row, row, signature_of

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


_OLD: dict[str, Any] = {"size_average": None, "reduce": None, "reduction": "mean"}


class _Loss(Row):
    """What every loss is; others write losses of their own on it, and take these settings."""

    _signature = signature_of(_OLD)

    def _read(self, settings: dict[str, Any]) -> dict[str, Any]:
        old = settings.pop("size_average", None), settings.pop("reduce", None)
        settings["reduction"] = F.reduction_of(*old, settings["reduction"])
        self._check(settings)
        return settings

    def _check(self, settings: dict[str, Any]) -> None:
        """Refuse invalid settings."""


class _WeightedLoss(_Loss):
    _signature = signature_of({"weight": None, **_OLD})


class _NamedLoss(_Loss):
    kind = inspect.Parameter.KEYWORD_ONLY


class _MultiMargin(_WeightedLoss):
    def _check(self, settings: dict[str, Any]) -> None:
        if settings["p"] not in (1, 2):
            raise ValueError(f"{type(self).__name__}: only p == 1 and p == 2 supported")
        weight = settings["weight"]
        if weight is not None and weight.ndim != 1:
            raise ValueError(
                "MultiMarginLoss: expected weight to be None or 1D tensor, got "
                f"{weight.ndim}D instead"
            )


class _Huber(_Loss):
    def _check(self, settings: dict[str, Any]) -> None:
        if not isinstance(settings["delta"], (float, int)):
            raise TypeError(f"delta must be a float or int, got: {type(settings['delta'])}")


class _Triplet(_Loss):
    def _check(self, settings: dict[str, Any]) -> None:
        if settings["margin"] <= 0:
            raise ValueError(
                f"{type(self).__name__}: expected margin to be greater than 0, got "
                f"{settings['margin']} instead"
            )


class _TripletByDistance(_Triplet):
    kind = inspect.Parameter.KEYWORD_ONLY

    def _check(self, settings: dict[str, Any]) -> None:
        if settings["distance_function"] is None:
            settings["distance_function"] = PairwiseDistance()
        super()._check(settings)


# fmt: off
MSELoss      = row(_Loss, "MSELoss", F.mse_loss, **_OLD)
L1Loss       = row(_Loss, "L1Loss", F.l1_loss, **_OLD)
SmoothL1Loss = row(_Loss, "SmoothL1Loss", F.smooth_l1_loss, **_OLD, beta=1.0)
HuberLoss    = row(_Huber, "HuberLoss", F.huber_loss, reduction="mean", delta=1.0)
KLDivLoss    = row(_Loss, "KLDivLoss", F.kl_div, **_OLD, log_target=False)
BCELoss      = row(_WeightedLoss, "BCELoss", F.binary_cross_entropy, weight=None, **_OLD)
CTCLoss      = row(_Loss, "CTCLoss", F.ctc_loss, blank=0, reduction="mean", zero_infinity=False)
BCEWithLogitsLoss = row(
    _WeightedLoss, "BCEWithLogitsLoss", F.binary_cross_entropy_with_logits,
    weight=None, **_OLD, pos_weight=None,
)
NLLLoss = row(
    _WeightedLoss, "NLLLoss", F.nll_loss,
    weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
)
CrossEntropyLoss = row(
    _WeightedLoss, "CrossEntropyLoss", F.cross_entropy,
    weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
    label_smoothing=0.0,
)
PoissonNLLLoss = row(
    _Loss, "PoissonNLLLoss", F.poisson_nll_loss,
    log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean",
)
GaussianNLLLoss = row(
    _NamedLoss, "GaussianNLLLoss", F.gaussian_nll_loss, full=False, eps=1e-6, reduction="mean"
)
HingeEmbeddingLoss  = row(_Loss, "HingeEmbeddingLoss", F.hinge_embedding_loss, margin=1.0, **_OLD)
MarginRankingLoss   = row(_Loss, "MarginRankingLoss", F.margin_ranking_loss, margin=0.0, **_OLD)
CosineEmbeddingLoss = row(_Loss, "CosineEmbeddingLoss", F.cosine_embedding_loss, margin=0.0, **_OLD)
SoftMarginLoss      = row(_Loss, "SoftMarginLoss", F.soft_margin_loss, **_OLD)
MultiLabelMarginLoss = row(_Loss, "MultiLabelMarginLoss", F.multilabel_margin_loss, **_OLD)
MultiLabelSoftMarginLoss = row(
    _WeightedLoss, "MultiLabelSoftMarginLoss", F.multilabel_soft_margin_loss, weight=None, **_OLD
)
MultiMarginLoss = row(
    _MultiMargin, "MultiMarginLoss", F.multi_margin_loss, p=1, margin=1.0, weight=None, **_OLD
)
TripletMarginLoss = row(
    _Triplet, "TripletMarginLoss", F.triplet_margin_loss,
    margin=1.0, p=2.0, eps=1e-6, swap=False, **_OLD,
)
TripletMarginWithDistanceLoss = row(
    _TripletByDistance, "TripletMarginWithDistanceLoss", F.triplet_margin_with_distance_loss,
    distance_function=None, margin=1.0, swap=False, reduction="mean",
)
# fmt: on


class NLLLoss2d(NLLLoss):  # type: ignore[misc, valid-type]
    """`NLLLoss` under its older name."""

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in "
            "replacement and see https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more "
            "details.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


# PyTorch has these here
__getattr__ = beside(
    globals(), {"lucid_gpu.nn.modules.linear_cross_entropy": "LinearCrossEntropyLoss"}
)
