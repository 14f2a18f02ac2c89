"""Schedules of learning rates, under PyTorch's names."""

from lucid_gpu.nn.argument_errors import all_named_in_errors as _all_named_in_errors
from lucid_gpu.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from lucid_gpu.optim.lr_scheduler.cycles import (
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
)
from lucid_gpu.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from lucid_gpu.optim.lr_scheduler.functions import LambdaLR, MultiplicativeLR
from lucid_gpu.optim.lr_scheduler.plateau import ReduceLROnPlateau
from lucid_gpu.optim.lr_scheduler.scheduler import (
    EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING,
)
from lucid_gpu.optim.lr_scheduler.scheduler import (
    LRScheduler,
    _enable_get_lr_call,
    _warn_get_lr_called_within_step,
)

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

_LRScheduler = LRScheduler

_all_named_in_errors(globals(), LRScheduler)
