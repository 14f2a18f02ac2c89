"""Layers are found where PyTorch has them, by type checkers too; arguments have its names."""

import importlib
import inspect
import pkgutil

import pytest

from lucid_gpu.nn import modules
from tests.oracle import torch_module

# Arguments of PyTorch's that are none here, or have another default, and why.
OTHERS = {
    "nn.LSTM": "its constructor names no arguments", "nn.GRU": "as LSTM", "nn.RNN": "as LSTM",
    "nn.Hardtanh": "older names of min_val and max_val are taken, and not shown",
    "utils.data.random_split": "PyTorch's default is the generator that None means",
}  # fmt: skip
NAMESPACES = ("nn", "nn.functional", "nn.grad", "nn.init", "nn.utils", "nn.utils.prune",
              "nn.utils.rnn", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data",
              "distributions")  # fmt: skip


def arguments(value):
    """Names and defaults; None where the names say nothing."""
    value = value.__init__ if inspect.isclass(value) and "torch" in value.__module__ else value
    try:
        found = [p for p in inspect.signature(value).parameters.values() if p.name != "self"]
    except ValueError:  # a builtin
        return None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
        return None
    return [(p.name, _text(p.default)) for p in found]


def _text(default):
    return "()" if default == () else getattr(default, "__name__", str(default))


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_arguments_are_torchs(namespace):
    torch_module()
    theirs, ours = (importlib.import_module(f"{m}.{namespace}") for m in ("torch", "lucid_gpu"))
    apart = {}
    for name in dir(ours):
        value, wanted = getattr(ours, name), getattr(theirs, name, None)
        own = str(getattr(value, "__module__", "")).startswith(f"lucid_gpu.{namespace[:2]}")
        if name[0] == "_" or not own or not callable(wanted) or f"{namespace}.{name}" in OTHERS:
            continue
        if inspect.isclass(wanted) and issubclass(wanted, (tuple, Exception)):
            continue
        expected, got = arguments(wanted), arguments(value)
        if expected is not None and expected != got:
            apart[name] = [pair for pair in zip(expected, got or expected) if pair[0] != pair[1]]
    assert not apart


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
