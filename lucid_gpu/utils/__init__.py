"""What training scripts use beside the model."""

import os as _os
from typing import Any as _Any

__path__ = [*__path__, _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "utils")]

from lucid_gpu.autograd.swapping import swap_tensors
from lucid_gpu.compat.module_names import imported as _imported
from lucid_gpu.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack", "swap_tensors"]

_TORCH_NAMES = (
    *(
        "_contextlib",
        "_pytree",
        "collect_env",
        "benchmark",
        "cpp_extension",
        "deterministic",
        "flop_counter",
        "hooks",
    ),
    *("model_zoo", "weak"),
)


def __getattr__(name: str) -> _Any:
    return _imported(globals(), name, modules=_TORCH_NAMES)
