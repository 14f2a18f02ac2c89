"""Python as on an older processor: the loops are left away, and results agree but for rounding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools import as_processor

TOOL = Path(as_processor.__file__)
FOUND = """
import json
import numpy as np
found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
print(json.dumps([found, np.cbrt(np.arange(1.0, 50.0)).tolist()]))
"""


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("processor", as_processor.KEPT)
def test_newer_loops_are_left_away(processor: str) -> None:
    ended = ran(processor, "-W", "error", "-c", FOUND)
    assert ended.returncode == 0, ended.stderr
    found, roots = json.loads(ended.stdout)
    assert set(found) <= as_processor.KEPT[processor]
    np.testing.assert_allclose(roots, np.cbrt(np.arange(1.0, 50.0)), 1e-15)


def test_the_exit_status_is_that_of_the_command() -> None:
    assert ran("sse", "-c", "raise SystemExit(3)").returncode == 3


def test_an_unknown_processor_is_refused() -> None:
    ended = ran("z80", "-c", "")
    assert ended.returncode == 1 and "usage: as_processor.py {avx2,sse}" in ended.stderr
