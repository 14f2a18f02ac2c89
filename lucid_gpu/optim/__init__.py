"""Optimizers, under PyTorch's names."""

from lucid_gpu.nn.argument_errors import all_named_in_errors as _all_named_in_errors
from lucid_gpu.optim import lr_scheduler, swa_utils
from lucid_gpu.optim.adadelta import Adadelta
from lucid_gpu.optim.adafactor import Adafactor
from lucid_gpu.optim.adagrad import Adagrad
from lucid_gpu.optim.adam import Adam, AdamW
from lucid_gpu.optim.adamax import Adamax
from lucid_gpu.optim.asgd import ASGD
from lucid_gpu.optim.lbfgs import LBFGS
from lucid_gpu.optim.minimize import scipy_minimize
from lucid_gpu.optim.muon import Muon
from lucid_gpu.optim.nadam import NAdam
from lucid_gpu.optim.optimizer import Optimizer
from lucid_gpu.optim.radam import RAdam
from lucid_gpu.optim.rmsprop import RMSprop
from lucid_gpu.optim.rprop import Rprop
from lucid_gpu.optim.sgd import SGD
from lucid_gpu.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "scipy_minimize",
    "swa_utils",
]

_all_named_in_errors(globals(), Optimizer)
