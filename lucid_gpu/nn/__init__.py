"""Modules, parameters and functions of neural networks, under PyTorch's names."""

from lucid_gpu.compat.module_names import imported as _imported
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
    return _imported(globals(), name)
