"""The layering check finds what it should and passes what it should."""

import pytest

from tools import check_layers


@pytest.mark.parametrize(
    ("file", "source", "wanted"),
    [
        ("nn/a.py", "from lucid_gpu.ops.record import record", None),
        ("nn/a.py", "from lucid_gpu.dtypes import dtype", None),
        ("tape/a.py", "from lucid_gpu.tensor import Tensor", "tape may not import tensor"),
        ("tape/a.py", "from lucid_gpu import tensor", "tape may not import tensor"),
        ("tape/a.py", "from ..tensor import Tensor", "tape may not import tensor"),
        ("tape/a.py", "def f():\n    import lucid_gpu.nn", "list it in LATE"),
        ("ops/einsum.py", "def f():\n    from lucid_gpu.backends import x", None),
        ("device.py", "from lucid_gpu.devices import room", "device may not import devices"),
        ("nn/a.py", "import numpy as np", "ask the device's room"),
        ("ops/a.py", "def f():\n    import cupy", "ask the device's room"),
        ("fusion/blocked.py", "import numpy as np", None),
        ("fusion/blocked.py", "import cupyx.scipy", "ask the device's room"),
        ("fusion/cuda_executor.py", "def f():\n    import cupy", "ask the device's room"),
        ("devices/a.py", "import cupy", "inside the function"),
        ("devices/a.py", "def f():\n    import cupy", None),
        ("ops/a.py", "if TYPE_CHECKING:\n    import numpy as np", None),
        ("ops/a.py", "import lucid_gpu", "imports lucid_gpu itself"),
        ("novelty.py", "", "no row in BELOW"),
        ("__init__.py", "from lucid_gpu.nn import Linear", None),
    ],
)
def test_one_import(tmp_path, file, source, wanted):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    found = check_layers.breaches(tmp_path)
    if wanted is None:
        assert found == []
    else:
        (line,) = found
        assert wanted in line


@pytest.mark.parametrize(
    ("a", "b", "there_is_one"),
    [
        ("from lucid_gpu.ops.b import f", "", False),
        ("from lucid_gpu.ops.b import f", "from lucid_gpu.ops.a import g", True),
        ("def f():\n    from lucid_gpu.ops import b", "import lucid_gpu.ops.a", True),
        ("from . import b", "import importlib\nimportlib.import_module('lucid_gpu.ops.a')", True),
        ("from lucid_gpu.ops import b", "if TYPE_CHECKING:\n    from . import a", False),
        ("from lucid_gpu.ops.b import f", "from lucid_gpu.ops.c import g", True),
    ],
)
def test_circles(tmp_path, a, b, there_is_one):
    folder = tmp_path / "ops"
    folder.mkdir()
    texts = {"a": a, "b": b, "c": "def h():\n    import lucid_gpu.ops.a", "__init__": ""}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    found = check_layers.circles(tmp_path)
    assert bool(found) is there_is_one
    assert all("lucid_gpu.ops.a, lucid_gpu.ops.b" in line for line in found)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("from lucid_gpu.ops.b import Thing\nThing.on = 1", "assigns to Thing of lucid_gpu.ops.b"),
        ("from .b import Thing as T\ndef f():\n    T.on += 1", "assigns to T of lucid_gpu.ops.b"),
        ("from lucid_gpu.ops import b\nb.size = 1", "assigns to b of lucid_gpu.ops"),
        ("from lucid_gpu import ops\nops.size = 1", "assigns to ops of lucid_gpu"),
        ("from lucid_gpu.ops import b\ndel b.size", "assigns to b of lucid_gpu.ops"),
        ("from lucid_gpu.ops.b import Thing\nsetattr(Thing, name, 1)", "assigns to Thing"),
        ("from lucid_gpu.ops.b import Thing\nThing().on = 1\nprint(Thing.on)", None),
        ("from lucid_gpu.ops.b import thing\nthing.on = 1", None),  # an object
        ("class Own:\n    on = 0\nOwn.on = 1", None),
    ],
)
def test_assignments_from_outside(tmp_path, source, wanted):
    folder = tmp_path / "ops"
    folder.mkdir()
    texts = {"a": source, "b": "class Thing:\n    on = 0\nthing = Thing()", "__init__": ""}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "__init__.py").write_text("")
    found = check_layers.assignments(tmp_path)
    assert len(found) == (wanted is not None) and (wanted or "") in "".join(found)


def test_a_value_is_assigned_by_its_owner_alone(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "value.py").write_text("def give(t, v):\n    t._expr = v")
    (tmp_path / "a.py").write_text("def f(t, v):\n    t._storage = t._expr\n    t._expr, w = v")
    assert check_layers.owned(tmp_path) == ["a.py:3: assigns _expr; OWNED says who may"]


def test_core_says_its_types(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.py").write_text(
        "def f(a: int, *b: Any) -> int: ...\ndef g(a: int) -> list[Any]: ...\n"
        "def _h(a: Any): ...\ndef metadata() -> Any: ...\ndef i(a: int): ...\n"
    )
    assert check_layers.vague(tmp_path) == [
        "core/a.py:1: f says Any; give the type",
        "core/a.py:2: g says Any; give the type",
    ]


def test_entries_that_nothing_needs(tmp_path, monkeypatch):
    (tmp_path / "tape").mkdir()
    (tmp_path / "tape" / "a.py").write_text("def f():\n    import lucid_gpu.nn\n    import numpy")
    monkeypatch.setattr(check_layers, "BELOW", {"tape": (), "attic": ()})
    monkeypatch.setattr(check_layers, "LATE", {("tape/a.py", "nn"), ("tape/a.py", "ops")})
    monkeypatch.setattr(check_layers, "ARRAYS", {"numpy": ("tape/", "ops/")})
    monkeypatch.setattr(check_layers, "KNOWN", {"nn": ("tape/a.py", "tape/b.py")})
    assert check_layers.unneeded(tmp_path) == [
        "BELOW has a row for attic, which does not exist",
        "LATE lists ('tape/a.py', 'ops'), which no longer happens",
        "ARRAYS lets ops/ import numpy; it does not",
        "KNOWN lets tape/b.py import nn; it does not",
    ]


@pytest.mark.parametrize(
    "source", ["from lucid_gpu.devices import capturing", "import lucid_gpu.devices.capturing"]
)
def test_a_capture_is_known_to_few(tmp_path, source):
    (tmp_path / "ops").mkdir()
    for name in ("captured", "shape"):
        (tmp_path / "ops" / f"{name}.py").write_text(source)
    assert check_layers.breaches(tmp_path) == [
        "ops/shape.py:1: imports devices.capturing; KNOWN says who may"
    ]


def test_six_files_know_of_a_capture():
    known = check_layers.KNOWN
    makers = {"devices.capturing", "devices.stream_capture", "cuda.captured_steps", "ops.captured"}
    files = {f"{module.replace('.', '/')}.py" for module in makers}
    assert len(files.union(*[known[module] for module in makers])) <= 6


def test_every_row_names_rows():
    for room, lower in check_layers.BELOW.items():
        assert set(lower) <= {*check_layers.BELOW, "*"}, room
