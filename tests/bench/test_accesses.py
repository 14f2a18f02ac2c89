"""Bounds of what `bench.accesses` counts, and how it counts; in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from ast import literal_eval
from typing import Any

import pytest

from bench.peers import environment

# A warp reads floats of shared memory that stand 8 bytes apart, then global ones, 32 bytes apart;
# the second warp's lanes read one number of each.
CODE = """
import numpy as np
from bench import accesses

def made(step, kind):
    records = np.zeros(64, accesses.RECORD)
    records["thread"], records["size"], records["kind"] = np.arange(64), 4, kind
    records["at"], records["address"][:32] = kind, 4096 + np.arange(32) * step
    return records

kernels = {"": accesses.counted(np.concatenate([made(8, 2), made(32, 0)]))}
for call in ("softmax", "layer norm", "cat", "attention, bfloat16, 64 columns"):
    with accesses.recorded() as found:
        accesses.CALLS[call]().sum().backward()
    kernels.update(found)
print({name.partition("_float32")[0]: (*c, c.mean, c.share) for name, c in kernels.items()})
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    ran = subprocess.run(
        [sys.executable, "-c", CODE], env=environment(), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return literal_eval(ran.stdout)


def test_lanes_in_one_bank_and_sectors_are_counted(kernels: dict[str, Any]) -> None:
    phases, ways, worst, requests, sectors, wanted = kernels[""][:6]
    assert (phases, ways, worst) == (2, 2 + 1, 2)
    assert (requests, sectors, wanted) == (2, 32 + 1, 33 * 4)


# Ways a part of a request to shared memory, and the used share of sectors. Arrays of the host begin
# at multiples of 16 bytes: that is a sector more of 17 than on a GPU.
@pytest.mark.parametrize(
    ("kernel", "ways", "share"),
    [
        ("lucid_softmax_held", 1.0, 0.9),
        ("lucid_softmax_backward_held", 1.0, 0.9),
        ("lucid_layer_norm_held", 1.0, 0.9),
        ("lucid_layer_norm_parts", 1.7, 0.75),
        ("lucid_concatenate", 1.0, 0.9),
        ("lucid_attention_forward_bfloat16", 1.5, 0.9),
        ("lucid_attention_gradients_bfloat16", 1.3, 0.9),
    ],
)
def test_banks_and_sectors_are_used(
    kernel: str, ways: float, share: float, kernels: dict[str, Any]
) -> None:
    *_, mean, used = kernels[kernel]
    assert mean <= ways
    assert used >= share
