"""Small programs beside torch: the command that times them, and what their steps call and make."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import host_costs
from bench.peers import TREE, environment
from lucid_gpu.devices import loops

# What a warm step calls and makes at most: `host_costs.COUNTS`. These numbers only fall: whoever
# makes a step do less writes it here.
LIMITS = {
    "(x * 2).sum().backward()": (135, 9, 1, 2, 0, 0),
    "x.tanh().sum().backward()": (132, 9, 1, 2, 0, 0),
    "(x + y).numpy()": (36, 3, 1, 0, 0, 0),
    "a @ b": (20, 1, 1, 1, 0, 0),
    "conv2d": (169, 1, 1, 1, 0, 0),
    "Function and back": (136, 12, 2, 2, 0, 0),
    "Function, 100 in a row": (4085, 526, 224, 101, 0, 0),
    "surrogate spike": (174, 17, 2, 3, 0, 0),
    "learned-step quantizer": (324, 36, 5, 2, 0, 0),
    "gradient reversal": (164, 13, 3, 2, 0, 0),
    "straight-through sign": (301, 17, 6, 2, 0, 0),
    "swish as a Function": (145, 17, 2, 2, 0, 0),
    "linear as a Function": (444, 25, 12, 2, 0, 0),
    "chain 64 x 64": (150, 21, 1, 2, 0, 0),
    "MLP of 4 layers": (1162, 82, 68, 9, 0, 0),
    "encoder layer, AdamW": (2327, 106, 98, 28, 0, 0),
    "conv, batch norm, relu, conv": (2069, 75, 47, 12, 1, 0),
    "LSTM": (1085, 46, 34, 9, 0, 0),
    "Sinkhorn, 20 rounds": (9450, 543, 214, 82, 0, 0),
    "a seen shape": (237, 20, 6, 4, 0, 0),
    "a new shape each step": (423, 20, 6, 4, 0, 0),
    "writes through 200 views": (15226, 800, 800, 0, 0, 0),
    "60 parameters by hand": (13987, 1036, 438, 130, 0, 0),
}


COUNT = """
import json
from bench import host_costs
print(json.dumps({name: host_costs.counted(name) for name in host_costs.PROGRAMS}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, int]]:
    """Counts of a process of their own: what other tests switch on costs calls."""
    if not loops.available():
        pytest.skip("the numbers are those of NumPy's loops called from C")
    ran = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=TREE, env=environment(), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    counts: dict[str, dict[str, int]] = json.loads(ran.stdout)
    return counts


@pytest.mark.parametrize("name", host_costs.PROGRAMS)
def test_steps_call_and_make_no_more_than_they_did(
    name: str, found: dict[str, dict[str, int]]
) -> None:
    limits = dict(zip(host_costs.COUNTS, LIMITS[name], strict=True))
    assert all(found[name][kind] <= limits[kind] for kind in limits), (found[name], limits)


def test_a_program_is_timed_beside_torch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the peer")
    monkeypatch.setattr(host_costs, "KEPT", tmp_path / "costs.md")
    kept = tmp_path / "costs.json"
    flags = ["--seconds", "0.02", "--rounds", "1", "--json", str(kept), "--write"]
    assert host_costs.main(["--case", "a @ b", *flags]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.startswith("| a step | us | torch | ratio | calls |") and row.startswith(
        "| `a @ b`"
    )
    found = json.loads(kept.read_text())
    times = found["rows"]["a @ b"]
    assert 0 < times["lucid_gpu"] < 1000 and 0 < times["torch"] < 1000
    assert row in (tmp_path / "costs.md").read_text()


def test_a_program_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        host_costs.main(["--case", "ML"])
    assert "invalid choice: 'ML'" in capsys.readouterr().err
