"""Modules, parameters and functions of neural networks, under PyTorch's names."""

from lucid_gpu.nn import attention, functional, grad, init, modules, parameter, utils
from lucid_gpu.nn.modules import *  # noqa: F403
from lucid_gpu.nn.parallel import DataParallel
from lucid_gpu.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)


def __getattr__(name: str) -> object:
    from lucid_gpu.compat.absent import lacking

    raise lacking("nn", name)
