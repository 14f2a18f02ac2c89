"""`make gpu` from end to end with the real CuPy: what hangs, crashes and fails loses nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_dress_rehearsal_loses_nothing(driver: Any, tmp_path: Path) -> None:
    """The variables of the stand-in, which this process has, are handed on to every part."""
    command = [sys.executable, "-m", "bench.gpu", "--rehearse", "--device", "cuda"]
    ran = subprocess.run(
        [*command, "--results", str(tmp_path / "results")],
        cwd=TREE, capture_output=True, text=True, timeout=850, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "driver stand-in 0 (no GPU), CuPy" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("rehearsal: 0 problems")
