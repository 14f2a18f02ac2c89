"""Layers are found where PyTorch has them, by type checkers too."""

import importlib
import pkgutil

from lucid_gpu.nn import modules


def test_the_list_of_layers_is_that_of_the_files():
    files = [
        importlib.import_module(f"{modules.__name__}.{f.name}")
        for f in pkgutil.iter_modules(modules.__path__)
    ]
    of_files = {
        name
        for f in files
        for name in getattr(f, "__all__", ())
        if isinstance(getattr(modules, name, None), type)
    }
    assert sorted(modules.__all__) == sorted(of_files)
