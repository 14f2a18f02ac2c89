"""tools/list_ops.py refuses to leave out ops that nothing else makes public."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "list_ops.py"


@pytest.mark.parametrize(
    ("early", "words"),
    [
        ("complex_views", "METHODS conj, _conj, _neg_view, resolve_conj, resolve_neg"),
        ("complex_views", "FUNCTIONS conj, _conj, _neg_view, resolve_conj, resolve_neg, is_conj"),
        ("convolution", "FUNCTIONS conv1d, conv2d, conv3d public"),
    ],
)
def test_a_file_that_is_imported_early_is_refused(early: str, words: str) -> None:
    """As if the package's top imported it: the index would drop its names."""
    program = (
        f"import runpy, sys; import lucid_gpu.ops.{early}; sys.argv[1:] = ['--check']; "
        f"runpy.run_path({str(TOOL)!r}, run_name='__main__')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=TOOL.parents[1], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert f"lucid_gpu/ops/{early}.py is imported with the package" in ended.stdout
    assert words in ended.stdout
