"""Libraries that have to be told of tensors, whichever is imported first.

einops finds its back ends among the subclasses of one of its classes, opt_einsum the functions of
an array library by a table. What we have to say is said when both are there: at once, or when their
module has been imported.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

__all__ = ["introduce"]

# their module: ours, which tells them
MODULES = {
    "einops._backends": "lucid_gpu.einops_backend",
    "opt_einsum.backends.dispatch": "lucid_gpu.opt_einsum_backend",
}


class Watch:
    """An entry of ``sys.meta_path`` that finds nothing and sees these imports."""

    def __init__(self, awaited: set[str]) -> None:
        self.awaited = awaited

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """None, but for what is awaited: its own spec, and our module after it ran."""
        if name not in self.awaited:
            return None
        self.awaited.remove(name)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return spec
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            importlib.import_module(MODULES[name])

        loader.exec_module = exec_module
        return spec


def introduce() -> None:
    """Called once, when the package has been imported."""
    for theirs, ours in MODULES.items():
        if theirs in sys.modules:
            importlib.import_module(ours)
    sys.meta_path.insert(0, Watch(set(MODULES).difference(sys.modules)))
