"""Libraries that have to be told of tensors, whichever is imported first.

einops finds its back ends among the subclasses of one of its classes. Ours is defined when both
are there: at once, or when einops' module of back ends has been imported.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

__all__ = ["introduce"]

_MODULE, _OURS = "einops._backends", "lucid_gpu.einops_backend"


class Watch:
    """An entry of ``sys.meta_path`` that finds nothing and sees one import, then leaves."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """None, but for einops' back ends: theirs, and ours after it ran."""
        if name != _MODULE or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return spec
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            importlib.import_module(_OURS)

        loader.exec_module = exec_module
        return spec


def introduce() -> None:
    """Called once, when the package has been imported."""
    if _MODULE in sys.modules:
        importlib.import_module(_OURS)
    else:
        sys.meta_path.insert(0, Watch())
