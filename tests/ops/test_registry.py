"""Ops imported late: the index names what the files list, and nothing imports them early."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import lucid_gpu
from lucid_gpu.ops import index
from lucid_gpu.tape.overrides import METHODS, function_of

FILES = sorted({*index.METHODS, *index.FUNCTIONS})


def test_the_index_is_up_to_date() -> None:
    tool = Path(__file__).parents[2] / "tools" / "list_ops.py"
    subprocess.run([sys.executable, tool, "--check"], check=True)


def test_methods_and_functions_are_the_files() -> None:
    for file in FILES:
        module = importlib.import_module(f"lucid_gpu.ops.{file}")
        for f in getattr(module, "METHODS", ()):
            assert function_of(getattr(lucid_gpu.Tensor, f.__name__)) is f
        for f in getattr(module, "FUNCTIONS", ()):
            found = getattr(lucid_gpu, f.__name__)
            assert inspect.unwrap(found) is inspect.unwrap(f)
            assert f.__name__ in dir(lucid_gpu)


def test_importing_the_package_imports_none_of_them() -> None:
    program = "import sys, lucid_gpu; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {f"lucid_gpu.ops.{file}" for file in FILES} & set(loaded)
    rooms = {"lucid_gpu.autograd.functional", "lucid_gpu.nn", "lucid_gpu.optim", "lucid_gpu.viz"}
    assert not rooms & set(loaded)


def test_pickle_finds_every_function() -> None:
    for namespace in (lucid_gpu, lucid_gpu.nn.functional):
        for name in dir(namespace):
            function = getattr(namespace, name)
            if type(function) in METHODS and name[0] != "_":
                assert pickle.loads(pickle.dumps(function)) is function, name
