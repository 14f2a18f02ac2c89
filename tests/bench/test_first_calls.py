"""The first steps of training scripts, beside torch's."""

from __future__ import annotations

import json

import pytest

from bench import first_calls
from bench.first_call_worker import exchanged
from bench.peers import TREE
from tests.slow import slow_but


@pytest.mark.parametrize(
    "line, ours, theirs",
    [
        ("import torch", "import lucid_gpu as torch", "import torch as torch"),
        ("import lucid_gpu as torch", "import lucid_gpu as torch", "import torch as torch"),
        ("    import torch.nn as nn", "    import lucid_gpu.nn as nn", "    import torch.nn as nn"),
        ("from torch import nn", "from lucid_gpu import nn", "from torch import nn"),
        ("from lucid_gpu.nn import x", "from lucid_gpu.nn import x", "from torch.nn import x"),
        ("import torchlike", "import torchlike", "import torchlike"),
    ],
)
def test_imports_are_exchanged(line, ours, theirs):
    assert exchanged(line, "lucid_gpu") == ours
    assert exchanged(line, "torch") == theirs


def test_every_script_takes_part():
    names = {name.partition("/")[2] for name in first_calls.scripts()}
    files = {path.stem for path in (TREE / "tests" / "scripts").glob("*.py")}
    assert files - names == {"test_scripts", *first_calls.BY_HAND}
    assert set(first_calls.EXAMPLES) <= names
    assert all((TREE / path).exists() for path in first_calls.scripts().values())


@pytest.mark.parametrize(
    "path", slow_but(["tests/scripts/regression.py", "examples/vae.py"], "examples/vae.py")
)
def test_a_script_is_stopped_after_its_steps(path):
    ends = first_calls.ends(path, "lucid_gpu", 1)
    assert len(ends) == first_calls.STEPS
    assert ends == sorted(ends)
    assert ends[0] > 0


def test_a_script_of_few_steps_has_no_later_one():
    assert first_calls.figures([3.0, 4.0]) == {"first": 3.0, "later": None}
    assert first_calls.figures([float(i) for i in range(20)]) == {"first": 0.0, "later": 1.0}


def test_ratios_are_those_of_the_rounds(monkeypatch):
    begun = {"lucid_gpu": iter([2.0, 9.0, 4.0]), "torch": iter([1.0, 3.0, 4.0])}
    monkeypatch.setattr(first_calls, "ends", lambda path, module, threads: [next(begun[module])])
    row = first_calls.measured("a.py", 3, 1)
    assert row == {"first": {"lucid_gpu": 4.0, "torch": 3.0, "ratio": 2.0}}
    assert first_calls.told(row) == ["4 s", "3 s", "2.00", "", "", ""]


def test_rows_of_scripts_that_were_not_run_stay(tmp_path):
    path, settings = tmp_path / "first-calls.json", {"rounds": 1, "threads": 1}
    row = {"first": {"lucid_gpu": 0.2, "torch": 0.1, "ratio": 2.0}}
    first_calls.keep({"examples/vae": row}, settings, path)
    first_calls.keep({"scripts/vae": row}, settings, path)
    assert list(json.loads(path.read_text())["rows"]) == ["scripts/vae", "examples/vae"]
    text = path.with_suffix(".md").read_text()
    assert "| examples/vae | 200 ms | 100 ms | 2.00 |  |  |  |" in text
