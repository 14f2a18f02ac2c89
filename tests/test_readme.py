"""The README's example runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (TREE / "README.md").read_text("utf-8"), re.DOTALL)
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    # d/dx of x * sigmoid(1.5 x) at 0 is a half.
    assert "0.5000" in ended.stdout
