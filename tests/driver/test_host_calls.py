"""What a step asks of the host, counted by `bench.launch_costs` and bounded by one table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lucid_gpu as torch
from bench import launch_costs
from lucid_gpu.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]

# The most of a step: launches, products, allocations, questions which device is current, functions
# that Python calls. Whoever makes a step ask for less writes it here.
BUDGETS = {
    "AdamW of 100 tensors": (1, 0, 0, 1, 326),
    "layer norm forward": (1, 0, 2, 5, 27),
    "layer norm forward and back": (3, 0, 6, 14, 98),
    "softmax forward and back": (2, 0, 2, 6, 99),
    "RMS norm forward and back": (3, 0, 5, 12, 94),
    "group norm forward and back": (4, 0, 6, 16, 336),
    "cross entropy forward and back": (3, 0, 5, 12, 138),
    "x + 1": (1, 0, 1, 3, 20),
    "x @ y": (0, 1, 1, 4, 23),
    "GPT of 6 layers, bfloat16": (130, 75, 279, 840, 9_620),
}
KINDS = ("launches", "products", "allocations", "device questions", "Python calls")


# A process that used a second stream or GPU asks more of every step from then on.
COUNT = """
import json, sys
from bench import launch_costs
from lucid_gpu.launch import compiling

compiling.setting.mode = "wait"
found = {name: launch_costs.counted(launch_costs.warmed(name)) for name in json.loads(sys.argv[1])}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Any:
    """What the steps ask for in a process that did nothing else."""
    if not request.config.getoption("--driver"):
        pytest.skip("a test of the stand-in for CUDA's driver: run make test-cuda-driver")
    command = [sys.executable, "-c", COUNT, json.dumps([*BUDGETS])]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert not ran.returncode, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", BUDGETS)
def test_a_step_keeps_its_budget(name: str, driver: Any, found: Any) -> None:
    asked = tuple([found[name][kind] for kind in KINDS])
    assert all(n <= most for n, most in zip(asked, BUDGETS[name], strict=True)), asked


def test_rows_cost_the_same_whatever_stands_before_them(driver: Any) -> None:
    """They are handed to the kernel as they lie, not by a view."""
    w, b = (torch.randn(64, device="cuda") for _ in range(2))
    calls = set()
    for shape in ((32, 64), (4, 8, 64), (2, 2, 8, 64)):
        x = torch.randn(shape, device="cuda", requires_grad=True)
        g = torch.randn(shape, device="cuda")

        def step(x: Any = x, g: Any = g) -> None:
            x.grad = None
            F.layer_norm(x, (64,), w, b).backward(g)

        for _ in range(launch_costs.WARM):
            step()
        calls.add(launch_costs.python_calls(step))
    assert len(calls) == 1
