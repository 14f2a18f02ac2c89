"""Optimizers, under PyTorch's names."""

from lucid_gpu.optim.adam import Adam, AdamW
from lucid_gpu.optim.optimizer import Optimizer
from lucid_gpu.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
