"""The README's example runs as printed; its figures are those of the results."""

import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (TREE / "README.md").read_text("utf-8"), re.DOTALL)
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    # d/dx of x * sigmoid(1.5 x) at 0 is a half.
    assert "0.5000" in ended.stdout


def test_what_the_examples_reached_is_what_a_run_reached():
    """To renew the rows: python -m bench.examples, and copy them from bench/results/examples.md."""
    readme, results = (
        re.findall(r"^\| `\w+\.py.*$", (TREE / file).read_text("utf-8"), re.MULTILINE)
        for file in ("README.md", "bench/results/examples.md")
    )
    assert readme == results and readme
