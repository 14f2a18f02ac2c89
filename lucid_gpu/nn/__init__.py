"""Modules, parameters and functions of neural networks, under PyTorch's names."""

import os as _os

__path__ = [*__path__, _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "nn")]

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
