"""What the stand-in offers is what CuPy has: the real package is asked, in a process of its own."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cupy", reason="names are compared with the real CuPy's")

MODULES = (
    "cupy", "cupy.lib.stride_tricks", "cupy.cuda", "cupy.cuda.device", "cupy.cuda.driver",
    "cupy.cuda.memory", "cupy.cuda.memory_hook", "cupy.cuda.nvtx", "cupy.cuda.runtime",
    "cupy.cuda.stream", "cupy.cuda.graph", "cupy.cuda.compiler", "cupyx", "cupyx.scipy.sparse",
    "cupy.linalg", "cupy.fft",
)  # fmt: skip
TELL = '''
import importlib, inspect, json, sys, types

def kind(x):
    if isinstance(x, type):
        return "class"
    if isinstance(x, types.ModuleType):
        return "module"
    return "callable" if callable(x) else "value"

def signature(x):
    """Names, kinds and defaults; None where the object does not say."""
    if type(x).__name__ == "ufunc":
        return [x.nin, x.nout, x.name, *x.types]
    if isinstance(x, type) and x.__init__ is object.__init__:
        return None
    try:
        found = inspect.signature(x)
    except (TypeError, ValueError):
        return None
    return [[p.name, str(p.kind), repr(p.default)] for p in found.parameters.values()]

def members(x):
    return [n for n in dir(x) if not n.startswith("_") and n != "from_address"]

def find(name):
    """A module by its name, or as an attribute of the one above."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        above, _, last = name.rpartition(".")
        return getattr(find(above), last)

told = {}
for name in sys.argv[1].split():
    module = find(name)
    for n in dir(module):
        if n.startswith("_") or n == "annotations":
            continue
        x = getattr(module, n, None)
        about = told[f"{name}.{n}"] = {"kind": kind(x), "signature": signature(x)}
        about["home"] = str(getattr(x, "__module__", None) or getattr(x, "__name__", ""))
        if isinstance(x, type):
            about["members"] = members(x)
if "cupy" in sys.argv[1].split():
    import cupy

    where = cupy._routines._where if hasattr(cupy, "_routines") else None
    if where is None:
        from cupy._sorting.search import _where_ufunc as where
    told["loops of where"] = {"kind": "callable", "signature": where.types, "home": ""}
json.dump(told, sys.stdout)
'''


@cache
def told(which: str) -> dict[str, Any]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if which == "standin":
        here = Path(__file__).parent
        env["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parents[1])])
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TELL, " ".join(MODULES)],
        env=env, capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def offered() -> dict[str, Any]:
    """The stand-in's own names: what a module imports for its own use is left out."""
    found = {}
    for name, about in told("standin").items():
        module, home = name.rpartition(".")[0], about["home"]
        own = home.split(".")[0] in ("cupy", "cupyx", "cupy_backends")
        if home in ("", module) or (own and module in ("cupy", "cupy.cuda", "cupyx")):
            found[name] = about
    return found


def test_every_name_is_one_of_cupys() -> None:
    real = told("real")
    assert len(offered()) > 250
    assert [name for name in offered() if name not in real] == []


def test_every_name_is_the_same_kind_of_thing() -> None:
    real = told("real")
    wrong = [
        (name, about["kind"], real[name]["kind"])
        for name, about in offered().items()
        if name in real and about["kind"] != real[name]["kind"]
    ]
    assert wrong == []


def test_every_signature_is_cupys_where_cupy_says_it() -> None:
    real = told("real")
    wrong = [
        (name, about["signature"], real[name]["signature"])
        for name, about in offered().items()
        if name in real
        and about["kind"] == "callable"
        and real[name]["signature"] is not None
        and about["signature"] != real[name]["signature"]
    ]
    assert wrong == []


def test_every_method_and_attribute_is_one_of_cupys() -> None:
    real = told("real")
    wrong = []
    for name, about in offered().items():
        members = real.get(name, {}).get("members")
        if members is not None:
            wrong += [f"{name}.{m}" for m in about.get("members", {}) if m not in members]
    assert wrong == []


def test_cublas_has_the_functions() -> None:
    """The real module cannot be imported without libcublas; its file holds its names."""
    found = importlib.util.find_spec("cupy_backends")
    assert found is not None and found.submodule_search_locations
    folders = [Path(p) for p in found.submodule_search_locations]
    files = [f for d in folders for f in d.glob("cuda/libs/cublas*") if f.suffix != ".py"]
    if not files:
        pytest.skip("only the stand-in's cublas is in sight")
    text = (Path(__file__).parent / "cupy_backends/cuda/libs/cublas.py").read_text()
    names = re.findall(r"^(?:def |class )?([A-Za-z]\w+)(?:\(| = |, )", text, re.MULTILINE)
    known = files[0].read_bytes()
    assert len(names) > 12
    assert [n for n in names if n.encode() not in known] == []


def test_nccl_has_the_methods() -> None:
    """Without libnccl too: the file of the real module holds what it says of its methods."""
    found = importlib.util.find_spec("cupy_backends")
    assert found is not None and found.submodule_search_locations
    folders = [Path(p) for p in found.submodule_search_locations]
    files = [f for d in folders for f in d.glob("cuda/libs/nccl*") if f.suffix != ".py"]
    if not files:
        pytest.skip("this CuPy was built without NCCL")
    known = files[0].read_bytes()
    text = (Path(__file__).parent / "cupy/cuda/nccl.py").read_text()
    body = next(
        n
        for n in ast.parse(text).body
        if isinstance(n, ast.ClassDef) and n.name == "NcclCommunicator"
    )
    methods = {
        f.name: [a.arg for a in f.args.args if a.arg != "self"]
        for f in body.body
        if isinstance(f, ast.FunctionDef) and not f.name.startswith("_") and not f.decorator_list
    }
    assert len(methods) == 13
    for name, expected in methods.items():
        said = re.search(rb"NcclCommunicator\.%b\(self(?:, )?([^)]*)\)" % name.encode(), known)
        assert said, name
        assert [w.split()[-1] for w in said[1].decode().split(", ") if w] == expected, name


NCCL = """
import json, sys, warnings
warnings.simplefilter("ignore")
from cupy.cuda import nccl
if not nccl.available:
    sys.exit("no libnccl")
numbers = {n: getattr(nccl, n) for n in dir(nccl) if n.startswith("NCCL_")}
one, other = nccl.get_unique_id(), nccl.get_unique_id()
errors = [str(nccl.NcclError(i)) for i in range(7)]
try:
    nccl.NcclError(7)
except KeyError:
    errors.append("KeyError")
print(json.dumps([numbers, errors, type(one).__name__, len(one), one != other]))
"""


def test_nccl_is_as_the_real_library() -> None:
    """The real library needs no GPU for its numbers, ids and errors."""

    def asked(standin: bool) -> Any:
        here = Path(__file__).parent
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if standin:
            env["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parents[1])])
        ran = subprocess.run(
            [sys.executable, "-c", NCCL],
            env=env,
            capture_output=True,
            text=True,
            cwd=here.parents[1],
        )
        if ran.stderr == "no libnccl\n":
            pytest.skip("libnccl is not installed: pip install nvidia-nccl-cu12")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    ours, real = asked(True), asked(False)
    assert len(ours[0]) == 20 and ours == real


# Who is asked by each operator with an array on the left: objects of other libraries, as classes.
ASK = """
import operator, sys, types
import numpy
import cupy

if not hasattr(cupy, "_array"):  # the real one, without a GPU: an array on memory never read
    import cupyx.scipy

    sys.modules["cupyx.scipy.special"] = types.ModuleType("special")
    cupyx.scipy.special = sys.modules["cupyx.scipy.special"]
    memory = cupy.cuda.UnownedMemory(4096, 64, None, 0)
    array = cupy.ndarray((2, 2), "f", memptr=cupy.cuda.MemoryPointer(memory, 0))
else:
    array = cupy.ones((2, 2), "f")

def reflected(self, other):
    return "reflected"

class Plain:
    pass

for name in "add sub mul truediv floordiv mod divmod pow lshift rshift and or xor matmul".split():
    setattr(Plain, f"__r{name}__", reflected)
for name in "lt le eq ne gt ge".split():
    setattr(Plain, f"__{name}__", reflected)

class Prior(Plain):
    __array_priority__ = 1000

class Ufunc(Prior):
    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return f"{ufunc.__name__} {method}"

class Declines(Prior):
    __array_ufunc__ = None

class OnInstance(Prior):
    __array_ufunc__ = property(lambda self: None)

class Raises(Ufunc):
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("requires grad")

class Lacks(Ufunc):
    @property
    def __cuda_array_interface__(self):
        raise AttributeError("requires grad")

class Overrides(Ufunc):
    __cuda_array_interface__ = {}
    def __cupy_override_elementwise_kernel__(self, kernel, *args, **options):
        return f"overrides {kernel.name} {len(args)} {sorted(options)}"

binary = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift"
in_place = "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift"
for kind in (Prior, Ufunc, Declines, OnInstance, Raises, Lacks, Overrides):
    operators = f"lt le eq ne gt ge imatmul {binary}"
    if kind is Overrides:  # without a GPU the real one computes nothing, nor refuses
        operators += f" {in_place}"
    for name in operators.split():
        try:
            found = getattr(operator, name)(array, kind())
        except Exception as error:
            found = type(error).__name__
        print(kind.__name__, name, found)
"""


def test_operators_ask_the_other_operand_as_cupys_do() -> None:
    def asked(standin: bool) -> list[str]:
        here = Path(__file__).parent
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if standin:
            env["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parents[1])])
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ASK],
            env=env, capture_output=True, text=True, cwd=here.parents[1],
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    real = asked(False)
    assert len(real) == 7 * 20 + 12 and "OnInstance matmul reflected" in real
    assert "Ufunc matmul matmul __call__" in real and "Raises add RuntimeError" in real
    assert asked(True) == real
