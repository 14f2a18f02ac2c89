"""What is freed on the host is kept for reuse."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
import lucid_gpu

def step():
    for array in [np.empty(1 << 20, np.uint8) for _ in range(8)]:
        array.fill(1)

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**env: str) -> int:
    settings = ("MALLOC", "GLIBC_TUNABLES")  # the user's own, which lucid_gpu leaves as they are
    kept = {k: v for k, v in os.environ.items() if not k.startswith(settings)}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_not_given_back_at_once() -> None:
    assert page_faults() < 100  # a step touches 2,048 pages


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
@pytest.mark.parametrize("name", ["LUCID_POOL_BYTES", "MALLOC_TRIM_THRESHOLD_"])
def test_who_wants_it_back_gets_it(name: str) -> None:
    assert page_faults(**{name: "0"}) > 2048
