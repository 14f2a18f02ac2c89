"""Modules, parameters and functions of neural networks, under PyTorch's names."""

from lucid_gpu.nn import functional, init, modules, utils
from lucid_gpu.nn.modules import *  # noqa: F403
from lucid_gpu.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init", "modules", "utils", *modules.__all__]
