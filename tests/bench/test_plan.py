"""Kernels launched and bytes moved by each block of the benchmark list, against the minimum."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from bench.peers import TREE, environment

pytestmark = pytest.mark.slow
PATH = TREE / "bench" / "results" / "plan.md"

# The most kernels, and the most bytes over the fewest.
MOST = {
    "negation": (1, 1.0),
    "column-sum": (1, 1.0),
    "full-sum": (1, 1.0),
    "cat": (1, 1.0),
    "transposed": (1, 1.0),
    "chain-forward": (1, 1.0),
    "chain-backward": (1, 1.0),
    "bias-gelu-residual": (1, 1.0),
    "dropout": (1, 1.0),
    "layer-norm-forward": (1, 1.01),
    "layer-norm-backward": (2, 1.34),
    "softmax-forward": (1, 1.0),
    "softmax-backward": (1, 1.0),
    "cross-entropy-32k": (2, 1.01),
    "cross-entropy-128k": (2, 1.01),
    "adam": (1, 1.0),
    "attention-forward": (1, 1.03),
    "attention-padded": (1, 1.27),
    "attention-backward": (3, 1.67),
    "launch": (1, 1.0),
}


@pytest.fixture(scope="module")
def table():
    """The lines that run now, in a process that runs nothing but CUDA C on the host."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    code = "from bench import plan; print(*map(plan.line, plan.rows()), sep='\\n')"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_every_block_is_near_its_minimum(table):
    seen = set()
    for line in table:
        name, _, _, kernels, fewest, _, _, _, ratio = [
            cell.strip() for cell in line[1:-1].split("|")
        ]
        if name in ("mlp", "gpt"):
            continue
        most_kernels, most_ratio = MOST[name]
        assert int(fewest) <= int(kernels) <= most_kernels, line
        assert not ratio or 1 <= float(ratio) <= most_ratio, line
        seen.add(name)
    assert seen == set(MOST)


def test_the_file_says_what_runs(table):
    """After a change of what is launched: ``python -m bench.plan`` writes the file anew."""
    blocks = PATH.read_text("utf-8").partition("## ")[0]
    written = [line for line in blocks.splitlines() if line.startswith("| ")]
    assert written[2:] == table
