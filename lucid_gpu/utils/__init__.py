"""What training scripts use beside the model."""

import importlib as _importlib
import os as _os
from types import ModuleType as _ModuleType

__path__ = [*__path__, _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "utils")]

from lucid_gpu.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]

_TORCH_NAMES = ("_pytree", "collect_env", "cpp_extension", "hooks", "model_zoo")


def __getattr__(name: str) -> _ModuleType:
    if name in _TORCH_NAMES:
        return _importlib.import_module(f"lucid_gpu.utils.{name}")
    raise AttributeError(f"module 'lucid_gpu.utils' has no attribute {name!r}")
