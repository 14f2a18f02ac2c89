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


def test_entries_that_nothing_needs(tmp_path, monkeypatch):
    (tmp_path / "tape").mkdir()
    (tmp_path / "tape" / "a.py").write_text("def f():\n    import lucid_gpu.nn\n    import numpy")
    monkeypatch.setattr(check_layers, "BELOW", {"tape": (), "attic": ()})
    monkeypatch.setattr(check_layers, "LATE", {("tape/a.py", "nn"), ("tape/a.py", "ops")})
    monkeypatch.setattr(check_layers, "ARRAYS", {"numpy": ("tape/", "ops/")})
    assert check_layers.unneeded(tmp_path) == [
        "BELOW has a row for attic, which does not exist",
        "LATE lists ('tape/a.py', 'ops'), which no longer happens",
        "ARRAYS lets ops/ import numpy; it does not",
    ]


def test_every_row_names_rows():
    for room, lower in check_layers.BELOW.items():
        assert set(lower) <= {*check_layers.BELOW, "*"}, room
