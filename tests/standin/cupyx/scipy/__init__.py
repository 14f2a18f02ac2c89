"""cupyx.scipy of the stand-in: SciPy on the host, for the names that CuPy has."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cupy
import numpy

# Where the real CuPy is installed its source says which names it has; its `__init__` is not run.
_installed = [Path(p, "cupyx", "scipy") for p in sys.path if "site-packages" in p]
REAL = next((folder for folder in _installed if folder.is_dir()), None)


def names(space: str) -> set[str]:
    """Return the names that the real `cupyx.scipy.<space>` imports."""
    import ast

    source = Path(REAL or ".", *space.split("."), "__init__.py")
    if REAL is None or not source.exists():
        return set()
    tree = ast.parse(source.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _host(value: Any) -> Any:
    if isinstance(value, cupy.ndarray):
        return cupy.asnumpy(value)
    if isinstance(value, numpy.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_host, value))
    return getattr(value, "host", value)  # of a sparse matrix


def _back(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_back, value))
    return cupy.asarray(value) if isinstance(value, (numpy.ndarray, numpy.generic)) else value


class _Space(ModuleType):
    def __getattr__(self, name: str) -> Any:
        space = self.__name__.removeprefix("cupyx.scipy.")
        if name not in names(space):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        function = getattr(importlib.import_module(f"scipy.{space}"), name)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            given = {key: _host(value) for key, value in kwargs.items()}
            return _back(function(*map(_host, args), **given))

        return called


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        space = name.removeprefix("cupyx.scipy.")
        if space == name or not names(space) or space == "sparse":
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec: Any) -> ModuleType:
        return _Space(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


sys.meta_path.append(_Finder())
